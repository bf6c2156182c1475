"""Lists of rows: filtered, sorted, and cut into pages that follow each other by key.

Source: docs/spec/console.md §2.1 (keyset pages; ``q`` is a substring, or a glob with ``*``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .query import BadQuery, Query
from .watch.orderings import Orderings, sorted_by

Row = Mapping[str, Any]
SortKey = Callable[[str], Any]
OrderOf = Callable[[str, bool], Sequence[str]]
"""The names that the filter lets pass by a column, downwards or not."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The names on one page, in order; ``total`` are those that the filter let pass."""

    names: Sequence[str]
    total: int
    next_url: str | None
    is_first: bool

    def state(self) -> dict[str, Any]:
        """For the model of a page."""
        return {"shown": len(self.names), "total": self.total, "is_first": self.is_first}


def cut(
    query: Query,
    orderings: Orderings,
    names: Sequence[str],
    values: Mapping[str, SortKey],
    default: str = "name",
) -> Slice:
    """The page of ``names`` (already filtered) that the query asks for.

    ``values`` has for each column by which one can sort how to get a name's value; a minus before
    it sorts downwards, and names without a value come last either way. Raises BadQuery.
    """

    def order_of(column: str, is_downward: bool) -> Sequence[str]:
        return sorted_by(names, values[column], is_downward)

    return cut_ordered(query, orderings, order_of, values, default)


def cut_ordered(
    query: Query,
    orderings: Orderings,
    order_of: OrderOf,
    values: Mapping[str, SortKey],
    default: str = "name",
) -> Slice:
    """As :func:`cut`, for lists whose orderings are at hand."""
    sort = query.text("sort") or default
    column, is_downward = sort.removeprefix("-"), sort.startswith("-")
    if column not in values:
        raise BadQuery(f"sort must be one of {', '.join(sorted(values))}, perhaps with a minus")
    after = query.after
    kept = orderings.kept(_ordering_key(query)) if after is not None else None
    ordered = kept if kept is not None else order_of(column, is_downward)
    if after is None:
        orderings.keep(_ordering_key(query), ordered)
    start = _start(ordered, after, values[column], is_downward)
    shown = ordered[start : start + query.rows]
    next_url = None
    if start + len(shown) < len(ordered):
        last = json.dumps([values[column](shown[-1]), shown[-1]], separators=(",", ":"))
        next_url = query.url(after=last)
    return Slice(shown, len(ordered), next_url, is_first=after is None)


def _ordering_key(query: Query) -> tuple[Any, ...]:
    same = {name: value for name, value in query.given.items() if name not in ("after", "n")}
    return query.path, *sorted(same.items())


def _start(
    ordered: Sequence[str], after: tuple[Any, str] | None, value_of: SortKey, is_downward: bool
) -> int:
    if after is None:
        return 0
    value, name = after
    try:
        return ordered.index(name) + 1
    except ValueError:  # it has gone since: go on where it would be
        pass
    if value is None:
        return next(
            (at for at, other in enumerate(ordered) if value_of(other) is None and other > name),
            len(ordered),
        )
    try:
        return next(
            (at for at, other in enumerate(ordered)
             if _is_behind(value_of(other), other, value, name, is_downward)),
            len(ordered),
        )  # fmt: skip
    except TypeError:
        raise BadQuery("after is none that this page has given") from None


def _is_behind(other: Any, other_name: str, value: Any, name: str, is_downward: bool) -> bool:
    if other is None:
        return True
    if other == value:
        return other_name > name
    return bool(other < value) if is_downward else bool(other > value)
