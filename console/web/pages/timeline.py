"""The timeline of a group: committed, end and lag as lines, and a mark for each change by hand.

Source: docs/spec/console.md §1 (timeline).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas.console.web.page import Page, View
from barnabas.console.web.plots import place_of, plot
from barnabas.console.web.watch.known_topics import KnownTopics
from barnabas.console.web.watch.timeline import Point
from barnabas.protocol.audit_topic import AuditRecord

from .failovers import moves_of
from .not_found import not_found
from .placement import placement_of

COLUMNS: Final = ("at_ms", "committed", "end", "lag", "partitions")
MARKS_MOST: Final = 50


async def page(view: View) -> Page:
    """The last day at most, as far as the offsets topic still remembers it."""
    group = view.query.required("group")
    standing = (await view.watch.groups.read(group)).value
    if standing is None or not standing.group.exists:
        return not_found(view, "group", group, view.watch.groups.source(group).known().problem)
    reading = await view.watch.timelines.read(group)
    audit = await view.watch.audit.read()
    found = reading.value
    points = found.points if found is not None else []
    marks = changes_of(group, audit.value or [])
    rebalances = [
        {"time_ms": one.timestamp_ms, "generation": one.generation, "members": one.members,
         "what": "epoch" if one.is_epoch else "generation"}
        for one in (found.generations if found is not None else ())
    ]  # fmt: skip
    moves = await _moves(view, group)
    rows = [_row(point) for point in points]
    model = {
        "group": group,
        "reading": reading.state(),
        "points": rows,
        "partitions": found.partitions if found is not None else 0,
        "all_partitions": found.all if found is not None else 0,
        "marks": marks,
        "rebalances": rebalances[::-1],
        "moves": moves,
        "plots": _plots(points, marks, [*_labels(rebalances), *_labels_of_moves(moves)]),
    }
    return Page(
        title=f"Timeline of {group}", template="timeline.html", model=model, columns=COLUMNS,
        rows=rows,
    )  # fmt: skip


def changes_of(group: str, records: Sequence[AuditRecord]) -> list[dict[str, Any]]:
    """The changes of a group by hand, each once, the newest first."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if record.group != group or not record.change:
            continue
        known = found.setdefault(
            record.change,
            {"change": record.change, "time_ms": record.time_ms, "reason": record.reason,
             "principal": record.principal, "host": record.host, "offsets": 0},
        )  # fmt: skip
        known["offsets"] += 1
    return list(found.values())[:MARKS_MOST]


def _row(point: Point) -> dict[str, Any]:
    return {
        "at_ms": point.at_ms, "committed": point.committed, "end": point.end, "lag": point.lag,
        "partitions": point.partitions,
    }  # fmt: skip


async def _moves(view: View, group: str) -> list[dict[str, Any]]:
    """When another coordinator took the group over, the newest first; of Barnabas' own clusters."""
    topics = (await view.watch.catalogue.topics.read()).value or KnownTopics()
    placement = placement_of(topics, group)
    if placement is None:
        return []
    return moves_of((await view.watch.events.read()).value or [], placement["partition"])


def _labels(rebalances: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"time_ms": one["time_ms"],
         "title": f"{one['what']} {one['generation']}" + (
             "" if one["members"] is None else f", {one['members']} members")}
        for one in rebalances
    ]  # fmt: skip


def _labels_of_moves(moves: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"time_ms": one["time_ms"], "title": f"node {one['node']} became its coordinator"}
        for one in moves
    ]


def _plots(
    points: Sequence[Point],
    marks: Sequence[dict[str, Any]],
    ticks: Sequence[dict[str, Any]],
) -> list[dict[str, Any]]:
    if not points:
        return []
    times = [point.at_ms for point in points]
    offsets = plot(
        times,
        [("end", [point.end for point in points]),
         ("committed", [point.committed for point in points])],
        from_zero=False,
    )  # fmt: skip
    lag = plot(times, [("lag", [point.lag for point in points])], from_zero=True)
    for plotted, label in ((offsets, "offsets"), (lag, "lag, records")):
        plotted["label"] = label
        plotted["marks"] = [
            {**mark, "x": x}
            for mark in marks
            if (x := place_of(plotted, times, mark["time_ms"])) is not None
        ]
        plotted["ticks"] = [
            {**tick, "x": x}
            for tick in ticks
            if (x := place_of(plotted, times, tick["time_ms"])) is not None
        ]
    return [lag, offsets]
