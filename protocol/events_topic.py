"""The records of ``__barnabas_events``: what happened to the cluster, as its nodes saw it.

The key is the node that tells it, so that what one node says keeps its order; the value is one JSON
object (UTF-8) that anybody can read::

    {"version":1,"time_ms":1795000000000,"node":2,"event":"failover","cause":"silent",...}

What an event has besides stands in docs/events.md. Fields and events that a later version adds are
to be ignored. Source: docs/spec/console.md §2.2 (E).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from .errors import CorruptRequest

EVENTS_TOPIC: Final = "__barnabas_events"
VERSION: Final = 1
_OWN: Final = ("version", "time_ms", "node", "event")


class EventKind(StrEnum):
    """What may have happened."""

    NODE_STARTED = "node-started"
    NODE_STOPPING = "node-stopping"
    CONTROLLER_ELECTED = "controller-elected"
    NODE_JOINED = "node-joined"
    FAILOVER = "failover"
    ROLES_CHANGED = "roles-changed"
    IN_SYNC_CHANGED = "in-sync-changed"
    OFFSETS_LOADED = "offsets-loaded"
    LEASE_LOST = "lease-lost"
    LEASE_REGAINED = "lease-regained"
    DIRECTORY_FAILED = "directory-failed"
    SETTINGS_CHANGED = "settings-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """One event."""

    time_ms: int
    """When it was noticed, by the wall clock of the node that tells it."""
    node: int
    """Who tells it."""
    event: str
    """One of EventKind, or what a later version knows."""
    fields: Mapping[str, Any]


def event_key(node: int) -> bytes:
    """The key of every event that a node tells."""
    return str(node).encode()


def event_value(event: ClusterEvent) -> bytes:
    """The value of one record."""
    own = {"version": VERSION, "time_ms": event.time_ms, "node": event.node, "event": event.event}
    return json.dumps(
        {**own, **event.fields, **own}, ensure_ascii=False, separators=(",", ":")
    ).encode()


def parse_event_value(value: bytes) -> ClusterEvent:
    """Read a value of this version or a later one. Raises CorruptRequest."""
    try:
        found = json.loads(value.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptRequest(f"event: {error}") from error
    if not isinstance(found, dict):
        raise CorruptRequest("event: no object")
    for name in ("version", "time_ms", "node"):
        if not isinstance(found.get(name), int) or isinstance(found[name], bool):
            raise CorruptRequest(f"event: {name} is {found.get(name)!r}")
    if not isinstance(found.get("event"), str):
        raise CorruptRequest(f"event: event is {found.get('event')!r}")
    fields = {name: each for name, each in found.items() if name not in _OWN}
    return ClusterEvent(
        time_ms=found["time_ms"], node=found["node"], event=found["event"], fields=fields
    )
