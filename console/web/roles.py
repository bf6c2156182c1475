"""Roles: who may look, read records, change groups and topics, or change everything.

A file in TOML; the first entry whose principal matches counts, and whoever matches none is not let
in::

    [[role]]
    principal = "User:bob"             # a glob; "token via console" where a token opens the console
    role = "operator"                  # viewer, reader, operator or admin
    topics = ["pay*"]                  # of which records are shown and settings changed; all
    groups = ["billing-*"]             # that may be changed; all

A role takes away only: the cluster's own access control decides all the same.
Source: docs/spec/console.md §3 (security).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from barnabas.client.os_errors import describe_os_error
from barnabas.console.command_line.failure import Failure

from .glob_pattern import glob_matcher
from .records.masking import Mask, Masks

Matcher = Callable[[str], bool]


class Forbidden(Exception):  # noqa: N818 - says what it is
    """The reader's role does not allow it; the text says which one would."""


class Role(IntEnum):
    """What somebody may do; each may do what those before it may."""

    VIEWER = 1
    """See everything but what stands in records: of these offset, time and size."""
    READER = 2
    """Read records, too."""
    OPERATOR = 3
    """Change groups and settings of topics, add partitions, end hanging transactions."""
    ADMIN = 4
    """Everything: topics, access control lists, quotas, users."""


ROLES: Final = tuple(role.name.lower() for role in Role)


def everything(name: str) -> bool:
    """Matches all names."""
    return True


@dataclass(frozen=True, slots=True)
class Rights:
    """What one principal may do here."""

    role: Role = Role.ADMIN
    topics: Matcher = everything
    groups: Matcher = everything

    def require(self, role: Role, *, topic: str | None = None, group: str | None = None) -> None:
        """Raise Forbidden unless the role suffices, for this topic and this group."""
        if self.role < role:
            mine = self.role.name.lower()
            raise Forbidden(f"your role here is {mine}; this takes {role.name.lower()}")
        if topic is not None and not self.topics(topic):
            raise Forbidden(f"your role here is not for topic {topic}")
        if group is not None and not self.groups(group):
            raise Forbidden(f"your role here is not for group {group}")

    def masks(self, masks: Masks) -> Masks:
        """The masks of the console, and what a role hides besides: all of a record."""
        if self.role >= Role.READER and self.topics is everything:
            return masks
        if self.role >= Role.READER:
            hidden = Mask(lambda topic: not self.topics(topic), (), (), "hide")
        else:
            hidden = Mask(everything, (), (), "hide")
        return masks.behind(hidden)


FULL: Final = Rights()
"""Of everybody, where no roles are given."""


class Roles:
    """All entries of a console."""

    def __init__(self, entries: Sequence[tuple[Matcher, Rights]]) -> None:
        self._entries = entries

    def of(self, principal: str) -> Rights | None:
        """The rights of a principal; None for somebody without a role."""
        return next((rights for matches, rights in self._entries if matches(principal)), None)


def read_roles(path: Path) -> Roles:
    """The roles in a file; raises Failure: one that is not understood opens nothing."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"--roles {path}: {describe_os_error(error)}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failure(f"--roles {path}: {error}") from None
    entries = document.get("role")
    if not isinstance(entries, list) or set(document) != {"role"}:
        raise Failure(f"--roles {path}: it has to consist of [[role]] entries")
    return Roles([_entry(path, number, entry) for number, entry in enumerate(entries, start=1)])


def _entry(path: Path, number: int, entry: Any) -> tuple[Matcher, Rights]:
    def problem(text: str) -> Failure:
        return Failure(f"--roles {path}: entry {number}: {text}")

    if not isinstance(entry, dict) or not set(entry) <= {"principal", "role", "topics", "groups"}:
        raise problem("it may have principal, role, topics and groups")
    if not isinstance(entry.get("principal"), str) or not entry["principal"]:
        raise problem("principal must be a text")
    if entry.get("role") not in ROLES:
        raise problem(f"role must be one of {', '.join(ROLES)}")
    globs = {}
    for name in ("topics", "groups"):
        found = entry.get(name, ["*"])
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise problem(f"{name} must be a list of texts")
        globs[name] = _any_of(found)
    rights = Rights(Role[entry["role"].upper()], globs["topics"], globs["groups"])
    return glob_matcher(entry["principal"]), rights


def _any_of(globs: Sequence[str]) -> Matcher:
    if "*" in globs:
        return everything
    matchers = [glob_matcher(glob) for glob in globs]
    return lambda name: any(matches(name) for matches in matchers)
