"""A barrier: the ends of a group's partitions at one moment, and whether it has read up to them.

The URL holds the barrier; `console/groups/crossing.py` says what has passed it.
Source: docs/spec/console.md §1 (barrier).
"""

from __future__ import annotations

import json
from typing import Any, Final

from barnabas.client.admin.log_ends import COMMITTED, LATEST, look_up
from barnabas.client.cluster import TopicPartition
from barnabas.console.groups.crossing import Barrier, Crossing, look
from barnabas.console.web.page import Page, View
from barnabas.console.web.query import BadQuery, url_of

from .not_found import not_found

COLUMNS: Final = ("topic", "partition", "barrier", "committed", "needs", "is_passed", "wait_s")
PARTITIONS_MOST: Final = 200
"""More do not fit into a URL."""
ISOLATIONS: Final = {"": 0, "committed": COMMITTED}
SEE_OTHER: Final = 303


async def page(view: View) -> Page:
    """With ``at``: how far the group is; without it the barrier is set now, and the URL told."""
    group = view.query.required("group")
    standing = (await view.watch.groups.read(group)).value
    if standing is None or not standing.group.exists:
        return not_found(view, "group", group, view.watch.groups.source(group).known().problem)
    if not view.query.text("at"):
        return await _set(view, group)
    barrier = _read(view.query.text("at"))
    crossing = Crossing(group, barrier)
    await look(view.watch.admin, crossing)
    rows = [_row(view, crossing, place) for place in sorted(barrier)]
    passed = sum(row["is_passed"] for row in rows)
    waits = [row["wait_s"] for row in rows if row["wait_s"] is not None]
    model = {
        "group": group,
        "set_ms": view.query.number("since", 0, 0, 2**53),
        "partitions": rows,
        "passed": passed,
        "is_passed": passed == len(rows),
        "wait_s": max(waits, default=None),
    }
    return Page(
        title=f"Barrier of {group}", template="barrier.html", model=model, columns=COLUMNS,
        rows=rows,
    )  # fmt: skip


async def _set(view: View, group: str) -> Page:
    isolation = view.query.text("isolation")
    if isolation not in ISOLATIONS:
        raise BadQuery("isolation must be committed, or nothing")
    places = sorted(await view.watch.admin.committed_offsets(group))
    if not places:
        raise BadQuery("the group has committed nothing: there is no partition to watch")
    if len(places) > PARTITIONS_MOST:
        raise BadQuery(f"the group has more than {PARTITIONS_MOST} partitions")
    ends = await look_up(view.watch.admin.cluster, places, LATEST, ISOLATIONS[isolation])
    missing = [place for place in places if place not in ends]
    if missing:
        raise BadQuery(f"{missing[0].topic}-{missing[0].partition} has no leader now")
    topics: dict[str, dict[int, int]] = {}
    for place in places:
        topics.setdefault(place.topic, {})[place.partition] = ends[place].offset
    parameters = {
        "group": group, "since": view.now_ms, "at": json.dumps(topics, separators=(",", ":")),
    }  # fmt: skip
    return Page(title="", template="", status=SEE_OTHER, next_url=url_of("/barrier", parameters))


def _read(text: str) -> Barrier:
    try:
        found = {
            TopicPartition(topic, int(number)): int(offset)
            for topic, offsets in json.loads(text).items()
            for number, offset in offsets.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise BadQuery("at is no barrier that this page has set") from None
    if not 0 < len(found) <= PARTITIONS_MOST or min(found.values()) < 0:
        raise BadQuery("at is no barrier that this page has set")
    return found


def _row(view: View, crossing: Crossing, place: TopicPartition) -> dict[str, Any]:
    needs = crossing.needs(place)
    committed = crossing.committed.get(place)
    speed = None
    if committed is not None:
        speed = view.watch.rates.observe(("group", crossing.group, place), committed)
    return {
        "topic": place.topic,
        "partition": place.partition,
        "barrier": crossing.barrier[place],
        "committed": committed,
        "needs": needs,
        "is_passed": not needs,
        "wait_s": needs / speed if needs and speed else None,
    }
