"""The query of a URL: the state of a page, read strictly and written back into links.

Source: docs/spec/console.md §2.1 (the URL is the state).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

ROWS: Final = 50
ROWS_MOST: Final = 500
NAME_MOST: Final = 32_767
"""Longer is no name that Kafka's protocol can carry."""


class BadQuery(Exception):  # noqa: N818 - says what it is
    """A part of the URL that cannot be understood; the text says which."""


class Query:
    """The parameters of one request; a name given twice counts once, the last one."""

    def __init__(self, path: str, given: Mapping[str, str]) -> None:
        self.path = path
        self.given = dict(given)

    def text(self, name: str, default: str = "") -> str:
        """A parameter as it stands."""
        value = self.given.get(name, default)
        if len(value) > NAME_MOST:
            raise BadQuery(f"{name} is too long")
        return value

    def required(self, name: str) -> str:
        """A parameter without which there is no page; raises BadQuery."""
        if name not in self.given:
            raise BadQuery(f"{name} is missing in the URL")
        return self.text(name)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds; raises BadQuery."""
        text = self.given.get(name, "")
        if not text:
            return default
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= len(str(2**63))):
            raise BadQuery(f"{name} must be a number")
        value = int(text)
        if not least <= value <= most:
            raise BadQuery(f"{name} must be from {least} to {most}")
        return value

    def flag(self, name: str) -> bool:
        """A box that is ticked."""
        return self.given.get(name, "") not in ("", "0", "no")

    def words(self, name: str) -> Sequence[str]:
        """Words with commas between them."""
        return [word for word in self.text(name).split(",") if word]

    @property
    def rows(self) -> int:
        """How many rows a page has."""
        return self.number("n", ROWS, 1, ROWS_MOST)

    @property
    def after(self) -> tuple[Any, str] | None:
        """Sort value and name of the last row that was shown; raises BadQuery."""
        text = self.text("after")
        if not text:
            return None
        try:
            value, name = json.loads(text)
        except (ValueError, TypeError, RecursionError):
            raise BadQuery("after is none that this page has given") from None
        if not isinstance(name, str) or not isinstance(value, str | int | float | None):
            raise BadQuery("after is none that this page has given")
        return value, name

    def url(self, ending: str = "", **changed: Any) -> str:
        """This page with some parameters changed; None removes one. ``ending``: json or csv."""
        merged = {**self.given, **changed}
        return url_of(self.path + (f".{ending}" if ending else ""), merged)


def url_of(path: str, parameters: Mapping[str, Any]) -> str:
    """A path with its parameters; those that are None or empty are left out."""
    kept = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path
