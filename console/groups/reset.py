"""``barnabas groups reset``: the eight ways to say where a group is to go on.

Source: docs/spec/users.md §2.1; the rules are those of Kafka 3.9's ConsumerGroupCommand.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, GroupDescription
from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.failure import Failure, Misuse

from . import evict
from .evict import add_evict_option
from .offsets_csv import INT64_MAX, INT64_MIN, partition_text, read_csv_file
from .plan import ChangePlan, changes_to, in_range, missing
from .scope import (
    add_groups,
    add_topics,
    described,
    names_given,
    partition_counts,
    partitions_of,
    require_existing,
)
from .time_arguments import datetime_ms, duration_ms, time_text

Offsets = Mapping[TopicPartition, int]
Target = tuple[dict[TopicPartition, Committed | None], dict[TopicPartition, str]]
"""Where to go on, and what is to be said about it, by partition."""


class NotPossible(Exception):  # noqa: N818 - says what it is
    """The scenario cannot be applied to this group, but may be to others."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Groups, scope and exactly one scenario."""
    add_groups(parser)
    parser.add_argument("--all-topics", action="store_true", help="whatever the group committed")
    add_topics(parser)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--to-earliest", action="store_true", help="the first record still kept")
    way.add_argument(
        "--to-latest", action="store_true", help="the end: only what comes from now on"
    )
    way.add_argument("--to-current", action="store_true", help="where it is; the end if nowhere")
    way.add_argument("--to-offset", type=_long, metavar="N", help="this offset")
    way.add_argument("--shift-by", type=_long, metavar="N", help="so many on, or back if negative")
    way.add_argument(
        "--to-datetime", type=datetime_ms, metavar="YYYY-MM-DDTHH:mm:SS.sss",
        help="the first record of then or later; UTC unless an offset is given",
    )  # fmt: skip
    way.add_argument(
        "--by-duration", type=duration_ms, metavar="PnDTnHnMnS",
        help="the first record of the time before now",
    )  # fmt: skip
    way.add_argument("--from-file", type=Path, metavar="CSV", help="as the file says")
    add_evict_option(parser)
    parser.add_argument("--export", action="store_true", help="print the new offsets as CSV")


async def planned(admin: Admin, chosen: argparse.Namespace) -> ChangePlan:
    """What the scenario means for each group."""
    wanted = chosen.read if chosen.from_file else {}
    scope = await partitions_of(admin, chosen.topics)
    now_ms = time.time_ns() // 1_000_000
    groups = await described(admin, chosen)
    asked = (_planned_for(admin, chosen, group, scope, wanted, now_ms) for group in groups)
    return ChangePlan.of(await asyncio.gather(*asked))


def summary(chosen: argparse.Namespace) -> str:
    """The command in a few words."""
    if chosen.to_datetime is not None:
        return f"reset --to-datetime {time_text(chosen.to_datetime)}"
    if chosen.by_duration is not None:
        return f"reset --by-duration {chosen.by_duration} ms"
    if chosen.to_offset is not None:
        return f"reset --to-offset {chosen.to_offset}"
    if chosen.shift_by is not None:
        return f"reset --shift-by {chosen.shift_by}"
    if chosen.from_file is not None:
        return f"reset --from-file {chosen.from_file.name}"
    ways = {"to_earliest": "earliest", "to_latest": "latest", "to_current": "current"}
    return f"reset --to-{next(word for name, word in ways.items() if getattr(chosen, name))}"


def check(chosen: argparse.Namespace) -> None:
    """Raises Misuse unless groups and partitions are named, in one way each.

    What a file says is read here, where no loop runs yet that would hold up Ctrl-C.
    """
    names = names_given(chosen)
    if chosen.all_topics and chosen.topics:
        raise Misuse("say --all-topics or --topic, not both")
    if not (chosen.all_topics or chosen.topics or chosen.from_file):
        raise Misuse("One of the reset scopes should be defined: --all-topics, --topic.")
    if chosen.from_file:
        chosen.read = read_csv_file(chosen.from_file, names)


async def _planned_for(
    admin: Admin,
    chosen: argparse.Namespace,
    group: GroupDescription,
    scope: list[TopicPartition],
    wanted: Mapping[str, Offsets],
    now_ms: int,
) -> ChangePlan:
    # For the plan only. A member may join before the commit arrives; the coordinator then answers
    # UNKNOWN_MEMBER_ID, and nothing of the group is changed.
    refusal = evict.refusal_of(group, chosen)
    if refusal is None and chosen.all_topics and not group.exists:
        refusal = missing(group.group)
    if refusal is not None:
        return ChangePlan(refusals={group.group: refusal})
    committed = await admin.committed_offsets(group.group)
    topic_partitions = list(committed) if chosen.all_topics else scope
    try:
        if chosen.from_file:
            targets, warnings = await _as_filed(admin, group.group, wanted)
        else:
            targets, warnings = await _targets(admin, chosen, topic_partitions, committed, now_ms)
    except NotPossible as reason:
        return ChangePlan(refusals={group.group: str(reason)})
    evicted = evict.evicted_of(group, chosen)
    return ChangePlan(
        changes=changes_to(group.group, committed, targets, warnings),
        evicted=evicted,
        notes=[evict.warning(name, count) for name, count in evicted.items()],
    )


async def _targets(
    admin: Admin,
    chosen: argparse.Namespace,
    topic_partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    now_ms: int,
) -> Target:
    if chosen.to_earliest:
        return _exactly(
            known("starting", await admin.start_offsets(topic_partitions), topic_partitions)
        )
    if chosen.to_latest:
        return _exactly(
            known("ending", await admin.end_offsets(topic_partitions), topic_partitions)
        )
    if chosen.to_current:
        return await _to_current(admin, topic_partitions, committed)
    if chosen.to_offset is not None:
        return await within_logs(admin, dict.fromkeys(topic_partitions, chosen.to_offset))
    if chosen.shift_by is not None:
        return await within_logs(admin, _shifted(topic_partitions, committed, chosen.shift_by))
    at_ms = chosen.to_datetime if chosen.by_duration is None else now_ms - chosen.by_duration
    return await _to_time(admin, topic_partitions, max(0, at_ms))


async def within_logs(admin: Admin, wanted: Offsets) -> Target:
    """These offsets, brought within their logs where they are not."""
    topic_partitions = list(wanted)
    starts = known("starting", await admin.start_offsets(topic_partitions), topic_partitions)
    ends = known("ending", await admin.end_offsets(topic_partitions), topic_partitions)
    targets: dict[TopicPartition, Committed | None] = {}
    warnings: dict[TopicPartition, str] = {}
    for topic_partition, offset in wanted.items():
        reached, warning = in_range(
            topic_partition, offset, starts[topic_partition], ends[topic_partition]
        )
        targets[topic_partition] = Committed(offset=reached)
        if warning is not None:
            warnings[topic_partition] = warning
    return targets, warnings


async def as_listed(admin: Admin, wanted: Offsets) -> Target:
    """The same for offsets out of a file: raises Failure for a partition that does not exist."""
    require_existing(
        wanted, await partition_counts(admin, (topic_partition.topic for topic_partition in wanted))
    )
    return await within_logs(admin, wanted)


async def _as_filed(admin: Admin, group: str, wanted: Mapping[str, Offsets]) -> Target:
    if group not in wanted:
        raise NotPossible(f"No reset plan for group {group} found")
    return await as_listed(admin, wanted[group])


async def _to_current(
    admin: Admin,
    topic_partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
) -> Target:
    # A committed offset stays as it is, metadata and leader epoch included, even outside the log:
    # that is what Kafka's tool does, and a consumer there follows auto.offset.reset as before.
    new = [
        topic_partition for topic_partition in topic_partitions if topic_partition not in committed
    ]
    ends = known("ending", await admin.end_offsets(new), new)
    targets: dict[TopicPartition, Committed | None] = {
        topic_partition: committed[topic_partition]
        if topic_partition in committed
        else Committed(offset=ends[topic_partition])
        for topic_partition in topic_partitions
    }
    return targets, {}


def _shifted(
    topic_partitions: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
    by: int,
) -> dict[TopicPartition, int]:
    shifted = {}
    for topic_partition in topic_partitions:
        if topic_partition not in committed:
            raise NotPossible(
                f"Cannot shift offset for partition {partition_text(topic_partition)} since there "
                "is no "
                "current committed offset"
            )
        shifted[topic_partition] = committed[topic_partition].offset + by
    return shifted


async def _to_time(admin: Admin, topic_partitions: list[TopicPartition], at_ms: int) -> Target:
    found = await admin.offsets_at(topic_partitions, at_ms)
    if len(found) < len(topic_partitions):
        known(
            "timestamp",
            {},
            [
                topic_partition
                for topic_partition in topic_partitions
                if topic_partition not in found
            ],
        )
    late = [
        topic_partition for topic_partition in topic_partitions if found[topic_partition] is None
    ]
    ends = known("ending", await admin.end_offsets(late), late)
    targets: dict[TopicPartition, Committed | None] = {}
    for topic_partition in topic_partitions:
        offset = found[topic_partition]
        targets[topic_partition] = Committed(
            offset=ends[topic_partition] if offset is None else offset
        )
    warnings = {
        topic_partition: f"Partition {topic_partition.partition} from topic "
        f"{topic_partition.topic} is empty. "
        "Falling back to latest known offset."
        for topic_partition in late
    }
    return targets, warnings


def _exactly(offsets: Offsets) -> Target:
    return {
        topic_partition: Committed(offset=offset) for topic_partition, offset in offsets.items()
    }, {}


def known(what: str, offsets: Offsets, topic_partitions: Iterable[TopicPartition]) -> Offsets:
    """``offsets``, all of them; raises Failure for the first place that has none."""
    for topic_partition in topic_partitions:
        if topic_partition not in offsets:
            raise Failure(
                f"Error getting {what} offset of topic partition: {partition_text(topic_partition)}"
            )
    return offsets


def _long(text: str) -> int:
    """A whole number of 64 bits, with its sign."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} must be a whole number") from None
    if not INT64_MIN <= number <= INT64_MAX:
        raise argparse.ArgumentTypeError(f"{text} does not fit into 64 bits")
    return number
