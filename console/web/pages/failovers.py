"""Failovers by phase: how a node was noticed to be lost, others elected, coordinators loaded.

Told by Barnabas' own clusters in ``__barnabas_events``. Source: docs/spec/console.md §2.3
(failovers); docs/events.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.node_status import number, text, whole
from barnabas.protocol.events_topic import EVENTS_TOPIC, ClusterEvent, EventKind

from .events import KINDS, event_row, kind_of

COLUMNS: Final = (
    "time_ms", "lost", "cause", "noticed_s", "elected_s", "loaded_s", "total_s", "partitions",
    "leaderless", "offsets_partitions", "from_standby",
)  # fmt: skip
FAILOVERS_MOST: Final = 500
EVENTS_SHOWN: Final = 100
LOADS_WITHIN_MS: Final = 60_000
"""A load so long after a failover belongs to it, unless another one came in between."""


async def page(view: View) -> Page:
    """The failovers of the last days, the newest first, and the latest events of any kind."""
    kind = kind_of(view)
    reading = await view.watch.events.read()
    topics = await view.watch.catalogue.topics.read()
    events = reading.value or []
    found = failovers_of(events)
    shown = [event for event in events if not kind or event.event == kind][:EVENTS_SHOWN]
    model = {
        "reading": reading.state(),
        "failovers": found,
        "events": [event_row(event) for event in shown],
        "kinds": list(KINDS),
        "is_told": bool(events) or EVENTS_TOPIC in (topics.value or {}),
    }
    return Page(
        title="Failovers", template="failovers.html", model=model, columns=COLUMNS, rows=found
    )


def failovers_of(events: Sequence[ClusterEvent]) -> list[dict[str, Any]]:
    """Each failover with the loads that followed it; events and result the newest first."""
    loads: list[ClusterEvent] = []
    found = []
    for event in events:
        if event.event == EventKind.OFFSETS_LOADED:
            loads.append(event)
        elif event.event == EventKind.FAILOVER:
            mine = [load for load in loads if load.time_ms - event.time_ms <= LOADS_WITHIN_MS]
            found.append(_failover(event, mine))
            loads = []
    return found[:FAILOVERS_MOST]


def _failover(event: ClusterEvent, loads: Sequence[ClusterEvent]) -> dict[str, Any]:
    noticed, elected = number(event.fields.get("noticed_s")), number(event.fields.get("elected_s"))
    loaded = max(filter(None, (number(load.fields.get("load_s")) for load in loads)), default=None)
    known = [phase for phase in (noticed, elected, loaded) if phase is not None]
    return {
        "time_ms": event.time_ms,
        "lost": whole(event.fields.get("lost")),
        "cause": text(event.fields.get("cause")) or "",
        "noticed_s": noticed,
        "elected_s": elected,
        "loaded_s": loaded,
        "total_s": sum(known) if known else None,
        "partitions": whole(event.fields.get("partitions")),
        "leaderless": whole(event.fields.get("leaderless")),
        "offsets_partitions": len(loads),
        "from_standby": sum(load.fields.get("standby") is True for load in loads),
    }


def moves_of(events: Iterable[ClusterEvent], partition: int) -> list[dict[str, Any]]:
    """When other nodes took an offsets partition over, in the order of the events."""
    return [
        {"time_ms": event.time_ms, "node": event.node,
         "load_s": number(event.fields.get("load_s")),
         "standby": event.fields.get("standby") is True}
        for event in events
        if event.event == EventKind.OFFSETS_LOADED and event.fields.get("partition") == partition
    ]  # fmt: skip
