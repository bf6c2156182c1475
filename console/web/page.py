"""A page: a model that is rendered as HTML, JSON or CSV, whichever the URL's ending asks for.

Source: docs/spec/console.md §0 (decision 2) and §2.1.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .console_settings import ConsoleSettings
from .query import Query
from .records.masking import Masks
from .session import Session
from .watch.cluster_watch import ClusterWatch
from .zones import Zone

FORMATS: Final = ("json", "csv")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Who looks at what: all that a page is made from."""

    session: Session
    settings: ConsoleSettings
    query: Query
    zone: Zone
    now_ms: int

    @property
    def masks(self) -> Masks:
        """What this reader is not shown of records."""
        return self.session.rights.masks(self.settings.masks)

    @property
    def watch(self) -> ClusterWatch:
        """What this reader knows of the cluster."""
        return self.session.watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is shown: ``model`` holds nothing but what JSON knows."""

    title: str
    template: str
    model: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[str] = ()
    """Of the CSV."""
    rows: Sequence[Mapping[str, Any]] = ()
    """Of the CSV: the table that the page is about."""
    next_url: str | None = None
    """Where the following rows are."""
    status: int = 200
    is_live: bool = True
    """A browser with JavaScript asks for it again every few seconds."""


PageFunction = Callable[[View], Awaitable[Page]]


def as_json(page: Page, now_ms: int) -> str:
    """The model, with the time at which it held."""
    document = {"title": page.title, "as_of_ms": now_ms, **page.model}
    if page.next_url is not None:
        document["next"] = page.next_url
    return json.dumps(document, ensure_ascii=False, indent=1)


def as_csv(page: Page) -> str:
    """The table; texts that a spreadsheet would take for a formula are led by an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(page.columns)
    for row in page.rows:
        writer.writerow([_cell(row.get(column)) for column in page.columns])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return _cell(" ".join(map(str, value)))
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
