"""The records of ``__barnabas_audit``: who moved which committed offset, and changed what else.

One record for each offset that changed, and one for each request that changed something else: it
has no group and no offsets, its action is the name of the API, and ``what`` tells the rest. The key
is the group in UTF-8 (of other changes API and topic); the value is one JSON object (UTF-8) that
anybody can read, with the fields of :class:`AuditRecord`, all of them but ``what`` always there,
and ``"version": 1``. Fields that a later version adds are to be ignored.

A command of ours tells which change it is, and why, in its client id::

    barnabas-admin:<change>:<reason>

Source: docs/spec/coordinator.md §3.8; described for readers in docs/groups.md.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, NamedTuple

from .errors import CorruptRequest

AUDIT_TOPIC: Final = "__barnabas_audit"
VERSION: Final = 1
TOOL_PREFIX: Final = "barnabas-admin"
"""Whoever begins its client id with this is one of our tools: what it commits is recorded."""
REASON_CHARACTERS_MAX: Final = 400

COMMIT: Final = "commit"
FORGET: Final = "forget"
DELETE: Final = "delete"
ACTIONS: Final = frozenset({COMMIT, FORGET, DELETE})
"""OffsetCommit, OffsetDelete, DeleteGroups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One changed offset; None for an old or new offset that there is not."""

    time_ms: int
    """When the change was decided, by the wall clock of the coordinator."""
    action: str
    """``commit``, ``forget`` (OffsetDelete) or ``delete`` (DeleteGroups)."""
    change: str
    """What belongs together: the id of one command, or of one request of another tool; empty for
    an ordinary commit."""
    principal: str
    host: str
    client_id: str
    group: str
    topic: str
    partition: int
    old_offset: int | None
    old_leader_epoch: int
    """-1 for none; so below."""
    old_metadata: str
    new_offset: int | None
    new_leader_epoch: int
    new_metadata: str
    reason: str
    """What the command said; empty where nobody said anything."""
    what: str = ""
    """Of a change that is none of offsets, as JSON: result, parts with their codes; else empty."""


_WHAT: Final = "what"
_FIELDS: Final = tuple(field.name for field in fields(AuditRecord) if field.name != _WHAT)
_TEXTS: Final = (
    "action", "change", "principal", "host", "client_id", "group", "topic", "old_metadata",
    "new_metadata", "reason",
)  # fmt: skip
_OFFSETS: Final = ("old_offset", "new_offset")


def audit_key(group: str) -> bytes:
    """The key of every record about ``group``: one partition has all of its history."""
    return group.encode()


def audit_value(record: AuditRecord) -> bytes:
    """The value of one record."""
    told = {"version": VERSION, **asdict(record)}
    if record.what:
        told[_WHAT] = json.loads(record.what)
    else:
        del told[_WHAT]
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()


def parse_audit_value(value: bytes) -> AuditRecord:
    """Read a value of this version or a later one. Raises CorruptRequest."""
    try:
        found = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptRequest(f"audit record: {error}") from error
    if not isinstance(found, dict) or not _is_whole_number(found.get("version")):
        raise CorruptRequest("audit record: no version")
    problem = next(filter(None, (_problem(found, name) for name in _FIELDS)), None)
    if found["version"] < VERSION or problem:
        raise CorruptRequest(f"audit record of version {found['version']}: {problem}")
    what = found.get(_WHAT)
    text = "" if not what else json.dumps(what, ensure_ascii=False, separators=(",", ":"))
    return AuditRecord(**{name: found[name] for name in _FIELDS}, what=text)


def _problem(found: dict[str, Any], name: str) -> str | None:
    value = found.get(name)
    if name in _TEXTS:
        is_good = isinstance(value, str)
    elif name in _OFFSETS:
        is_good = name in found and (value is None or _is_whole_number(value))
    else:
        is_good = _is_whole_number(value)
    return None if is_good else f"{name} is {value!r}"


def _is_whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class ToolWord(NamedTuple):
    """What a tool of ours says in its client id."""

    change: str
    reason: str


def tool_client_id(change: str, reason: str) -> str:
    """The client id under which a command makes its changes; an overlong reason is cut."""
    assert ":" not in change, change
    printable = "".join(character if character.isprintable() else " " for character in reason)
    return f"{TOOL_PREFIX}:{change}:{printable[:REASON_CHARACTERS_MAX]}"


def parse_tool_client_id(client_id: str) -> ToolWord | None:
    """What a tool says; None for any other client."""
    if not client_id.startswith(TOOL_PREFIX):
        return None
    _, _, rest = client_id.partition(":")
    change, _, reason = rest.partition(":")
    return ToolWord(change, reason)
