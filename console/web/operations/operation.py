"""What a change of the cluster consists of: fields, a plan that changes nothing, and the deed.

A plan is made from the fields of a URL and shown; applied, it is made once more, and done only if
it still says the same. Source: docs/spec/console.md §0 (decision 5: plan, diff, apply, verify,
undo).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.console.web.page import View
from barnabas.console.web.query import BadQuery
from barnabas.console.web.roles import Role

LINES_MOST: Final = 200
SECRET: Final = "secret"  # noqa: S105 - the name of a field
"""The posted field that stands in no URL, no page and no log."""
SECRET_CHARACTERS_MOST: Final = 1_000
LINE_CHARACTERS_MOST: Final = 32_767


class Impossible(Exception):  # noqa: N818 - says what it is
    """The cluster as it is does not allow the change; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of the form; its value stands in the URL."""

    name: str
    label: str
    example: str = ""
    choices: Sequence[str] = ()
    is_long: bool = False
    """Several lines."""
    is_needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing before and after; None where there is nothing."""

    what: str
    old: str | None
    new: str | None

    def as_json(self) -> dict[str, Any]:
        """For programs and templates."""
        return {"what": self.what, "old": self.old, "new": self.new}


Deed = Callable[[Admin, Mapping[str, str]], Awaitable[None]]
"""Does it; what was posted with it holds the secrets. Raises KafkaError."""
Check = Callable[[Admin], Awaitable[str]]
"""Reads again what there is then; why it is not as planned, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a change would do."""

    summary: str
    """For people, the audit trail and the client id: ``delete topic orders``."""
    rows: Sequence[Row]
    do: Deed
    check: Check
    notes: Sequence[str] = ()
    typed: str | None = None
    """What has to be typed before it is done; None for what loses nothing."""
    secret: str | None = None
    """The label of a field that is posted with it and stands nowhere."""
    undo: Mapping[str, str] | None = None
    """The fields of the operation that takes it back."""
    undo_path: str = ""
    back: str = "/overview"
    """Where the thing is seen."""

    @property
    def is_needed(self) -> bool:
        """Whether it would change anything."""
        return any(row.old != row.new for row in self.rows) or self.secret is not None


Values = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One way to change the cluster; its path is its name in the registry."""

    path: str
    title: str
    verb: str
    """On the button."""
    fields: Sequence[Field]
    plan: Callable[[View, Values], Awaitable[Planned]]
    """Raises BadQuery, Impossible, KafkaError."""
    role: Role = Role.ADMIN
    aside: str = ""
    """What should be known before."""
    section: str = "/overview"
    """The entry of the navigation that is marked."""


def needed(values: Values, name: str) -> str:
    """The value of a field that may not be empty; raises BadQuery."""
    value = values.get(name, "").strip()
    if not value:
        raise BadQuery(f"say {name.replace('_', ' ')}")
    if len(value) > LINE_CHARACTERS_MOST:
        raise BadQuery(f"{name.replace('_', ' ')} is too long")
    return value


def whole(values: Values, name: str, least: int, most: int, default: int | None = None) -> int:
    """A whole number within bounds; raises BadQuery."""
    text = values.get(name, "").strip()
    if not text and default is not None:
        return default
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not is_number or not least <= int(text) <= most:
        raise BadQuery(f"{name.replace('_', ' ')} must be a number from {least} to {most}")
    return int(text)


def pairs(values: Values, name: str) -> dict[str, str]:
    """Lines of ``name=value``; raises BadQuery."""
    lines = [line.strip() for line in values.get(name, "").splitlines()]
    found: dict[str, str] = {}
    for line in filter(None, lines[: LINES_MOST + 1]):
        left, equals, right = line.partition("=")
        if not equals or not left.strip():
            raise BadQuery(f"{line[:100]!r} must read NAME=VALUE")
        found[left.strip()] = right.strip()
    if len(lines) > LINES_MOST:
        raise BadQuery(f"{name} has more than {LINES_MOST} lines")
    return found
