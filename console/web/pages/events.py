"""Events: what happened to the cluster, as its nodes told it in ``__barnabas_events``.

Source: docs/spec/console.md §2.2 (E) and §2.3 (events); docs/events.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

from barnabas.console.web.glob_pattern import search_matcher
from barnabas.console.web.page import Page, View
from barnabas.console.web.query import BadQuery
from barnabas.console.web.rows import cut
from barnabas.protocol.events_topic import EVENTS_TOPIC, ClusterEvent, EventKind

COLUMNS: Final = ("time_ms", "node", "event", "what")
KINDS: Final = tuple(kind.value for kind in EventKind)
DEFAULT_SORT: Final = "-time"
TEXT_MOST: Final = 1_000
_NODE_MOST: Final = 2**31 - 1


async def page(view: View) -> Page:
    """The events of the last days that the filters let pass, the newest first."""
    reading = await view.watch.events.read()
    topics = await view.watch.catalogue.topics.read()
    events = reading.value or []
    rows = {_name(event): event_row(event) for event in _passing(view, events)}

    def value_of(column: str) -> Any:
        return lambda name: rows[name][column] if name in rows else None

    sorts = {"time": value_of("time_ms"), "node": value_of("node"), "event": value_of("event")}
    part = cut(view.query, view.watch.orderings, list(rows), sorts, DEFAULT_SORT)
    shown = [rows[name] for name in part.names if name in rows]
    model = {
        "reading": reading.state(),
        "list": part.state(),
        "events": shown,
        "kinds": list(KINDS),
        "nodes": sorted({event.node for event in events}),
        "all": len(events),
        "is_on": bool(events) or EVENTS_TOPIC in (topics.value or {}),
    }
    return Page(
        title="Events", template="events.html", model=model, columns=COLUMNS, rows=shown,
        next_url=part.next_url,
    )  # fmt: skip


def kind_of(view: View) -> str:
    """The kind that the query asks for, empty for any; raises BadQuery."""
    kind = view.query.text("event")
    if kind and kind not in KINDS:
        raise BadQuery(f"event must be one of {', '.join(KINDS)}")
    return kind


def event_row(event: ClusterEvent) -> dict[str, Any]:
    """An event in a table: its fields in words."""
    words = [
        f"{name} {value if isinstance(value, str | int | float) else json.dumps(value)}"
        for name, value in event.fields.items()
    ]
    return {
        "time_ms": event.time_ms, "node": event.node, "event": event.event,
        "what": ", ".join(words)[:TEXT_MOST],
    }  # fmt: skip


def _passing(view: View, events: Sequence[ClusterEvent]) -> list[ClusterEvent]:
    kind = kind_of(view)
    node = view.query.number("node", -1, -1, _NODE_MOST)
    pattern = view.query.text("q")
    matches = search_matcher(pattern)
    return [
        event
        for event in events
        if (not kind or event.event == kind)
        and (node < 0 or event.node == node)
        and (not pattern or matches(event_row(event)["what"]))
    ]


def _name(event: ClusterEvent) -> str:
    """Names one event among all, for the page that follows."""
    digest = crc32(json.dumps(event.fields, sort_keys=True).encode())
    return f"{event.time_ms:015}-{event.node}-{event.event}-{digest:08x}"
