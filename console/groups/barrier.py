"""``barnabas groups barrier``: where logs end now, and whether a group has read up to there.

All that was acknowledged before lies below the barrier; gaps of compaction and markers of
transactions count as read. Source: docs/spec/console.md §1 (barrier).
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.log_ends import COMMITTED, LATEST, look_up
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Failure, Misuse
from barnabas.console.command_line.number_arguments import INT32_MAX, whole_number
from barnabas.console.command_line.output import note, print_json, print_table, shown

from .crossing import Barrier, Crossing, look
from .offsets_csv import partition_text, print_csv, read_csv_file
from .plan import missing
from .scope import add_topics, is_in_scope, partitions_of

COLUMNS: Final = ("GROUP", "TOPIC", "PARTITION", "BARRIER", "CURRENT-OFFSET", "NEEDS", "STATUS")
_LOOK_S: Final = 0.5
_UNCOMMITTED: Final = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which group, which barrier, and how long to wait."""
    parser.add_argument("group", metavar="GROUP")
    add_topics(parser)
    parser.add_argument(
        "--wait", type=whole_number(0, INT32_MAX), metavar="SECONDS",
        help="until the group has passed it, at most so long",
    )  # fmt: skip
    parser.add_argument(
        "--read-committed", action="store_true",
        help="the last stable offset: what open transactions wrote is not asked for",
    )  # fmt: skip
    parser.add_argument(
        "--from-file", type=Path, metavar="CSV", help="a barrier that --export has printed"
    )
    parser.add_argument(
        "--export", action="store_true", help="print the barrier as CSV, and do not wait"
    )


def check(chosen: argparse.Namespace) -> None:
    """Raises Misuse for what contradicts itself; reads what is given as a file."""
    if chosen.export and (chosen.from_file is not None or chosen.wait is not None):
        raise Misuse("--export sets a barrier: say neither --from-file nor --wait")
    if chosen.export and chosen.json:
        raise Misuse("say --export or --json, not both")
    if chosen.from_file is not None:
        if chosen.topics or chosen.read_committed:
            raise Misuse("--from-file says what the barrier is: say neither --topic nor more")
        found = read_csv_file(chosen.from_file, [chosen.group])
        if set(found) != {chosen.group}:
            raise Failure(f"{chosen.from_file} is no barrier of {chosen.group}")
        chosen.read = found[chosen.group]


def run(chosen: argparse.Namespace) -> int:
    """Set it, or take one that was set; 1 while the group has not passed it."""
    set_ms = None if chosen.from_file else time.time_ns() // 1_000_000
    crossing = administer(chosen, lambda admin: _crossed(admin, chosen))
    if chosen.export:
        print_csv({crossing.group: dict(crossing.barrier)}, with_group=False)
        return 0
    if chosen.json:
        print_json(_document(crossing, set_ms))
    else:
        print_table(COLUMNS, [_row(crossing, place) for place in sorted(crossing.barrier)])
    left = crossing.left
    whole = len(crossing.barrier)
    if left:
        needs = sum(map(crossing.needs, left))
        note(f"{whole - len(left)} of {whole} partitions have passed it; {needs} offsets are left")
    else:
        note(f"group '{crossing.group}' has passed it in all {whole} partitions")
    return 1 if left else 0


async def _crossed(admin: Admin, chosen: argparse.Namespace) -> Crossing:
    barrier: Barrier
    if chosen.from_file is not None:
        barrier = chosen.read
    else:
        barrier = await set_barrier(
            admin, chosen, isolation=COMMITTED if chosen.read_committed else _UNCOMMITTED
        )
    crossing = Crossing(chosen.group, barrier)
    if chosen.export:
        return crossing
    deadline = time.monotonic() + (chosen.wait or 0)
    said = ""
    while True:
        await look(admin, crossing)
        if not crossing.left or time.monotonic() >= deadline:
            return crossing
        line = f"waiting for {len(crossing.left)} of {len(barrier)} partitions"
        if line != said:
            note(line)
            said = line
        await asyncio.sleep(_LOOK_S)


async def set_barrier(admin: Admin, chosen: argparse.Namespace, *, isolation: int) -> Barrier:
    """The ends of what the group has committed or was given. Raises Failure, KafkaError."""
    described = await admin.describe_group(chosen.group)
    if not described.exists:
        raise Failure(missing(chosen.group))
    await partitions_of(admin, chosen.topics)  # a topic that is not there is told
    given = {place for member in described.members for place in member.assignment}
    places = sorted(
        place
        for place in {*await admin.committed_offsets(chosen.group), *given}
        if is_in_scope(chosen.topics, *place)
    )
    if not places:
        raise Failure(f"group '{chosen.group}' has no partition there to watch")
    ends = await look_up(admin.cluster, places, LATEST, isolation)
    for place in places:
        if place not in ends:
            raise Failure(f"{partition_text(place)} has no leader now, so its end is not known")
    return {place: ends[place].offset for place in places}


def _row(crossing: Crossing, place: TopicPartition) -> tuple[object, ...]:
    needs = crossing.needs(place)
    return (
        crossing.group,
        place.topic,
        place.partition,
        crossing.barrier[place],
        shown(crossing.committed.get(place)),
        needs,
        "waiting" if needs else "passed",
    )


def _document(crossing: Crossing, set_ms: int | None) -> dict[str, Any]:
    return {
        "group": crossing.group,
        "set_ms": set_ms,
        "passed": not crossing.left,
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "barrier": crossing.barrier[place],
                "committed": crossing.committed.get(place),
                "needs": crossing.needs(place),
                "passed": not crossing.needs(place),
            }
            for place in sorted(crossing.barrier)
        ],
    }
