"""``barnabas groups lag``: how far groups are behind, in records and seconds, and what that means.

Kafka's columns come first, as ``groups describe`` prints them; ours follow. Everything is asked
when the command runs: no collector has to have been there before.
Source: docs/spec/users.md §3 (definition, verdicts) and §7, wishes 2 to 5.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.commit_history import History, SeenCommit, ends_at, read_histories
from barnabas.client.admin.descriptions import GroupDescription, Progress
from barnabas.client.admin.time_lag import UnreadRange, first_unread_ms
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.failure import Misuse
from barnabas.console.command_line.output import note, print_json, print_table, shown
from barnabas.coordinator.group_health import (
    BURROW,
    END_EVERY_MS,
    CommitSample,
    Verdict,
    evaluate,
    evaluate_group,
)
from barnabas.coordinator.lag import Lag, lag_of, seconds_behind, unread_from
from barnabas.protocol.errors import ErrorCode

LAG_COLUMNS: Final = ("LAG-SECONDS", "VERDICT", "NOTE")
"""What stands behind Kafka's columns."""
_NO_HISTORY: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
_RECENT_MS: Final = BURROW.commits * END_EVERY_MS


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How one partition of a group stands; None for what could not be found out."""

    progress: Progress
    lag: Lag | None
    seconds: float | None
    verdict: Verdict

    @property
    def note(self) -> str | None:
        """What is odd about the offset."""
        if self.lag is None:
            return None
        if self.lag.is_below_log_start:
            return "below-log-start"
        return "beyond-end" if self.lag.is_beyond_end else None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group and all its partitions."""

    group: GroupDescription
    partitions: Sequence[PartitionLag]

    @property
    def verdict(self) -> Verdict:
        """The worst of its partitions."""
        return evaluate_group(partition.verdict for partition in self.partitions)

    @property
    def records(self) -> int:
        """What is still to be read, in all partitions that are known."""
        return sum(
            partition.lag.records for partition in self.partitions if partition.lag is not None
        )

    @property
    def seconds(self) -> float | None:
        """The age of the oldest record that is not read yet; None when none is known."""
        return max(
            (partition.seconds for partition in self.partitions if partition.seconds is not None),
            default=None,
        )


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `groups lag` can be told besides the groups and the cluster."""
    parser.add_argument(
        "--max-lag", type=int, metavar="N", help="exit 1 when a group is further behind"
    )
    parser.add_argument(
        "--max-seconds",
        type=float,
        metavar="S",
        help="exit 1 when its oldest unread record is older",
    )


def run(
    chosen: argparse.Namespace, columns: Sequence[str], cells: Callable[[Progress], list[object]]
) -> int:
    """Print how groups stand; 1 when one is missing, or further behind than allowed.

    ``columns`` and ``cells`` are Kafka's part of the table.
    """
    if not chosen.names and not chosen.all_groups:
        raise Misuse("name a group, or say --all-groups")
    partition_lags = administer(chosen, lambda admin: _group_lags(admin, chosen))
    found = [group_lag for group_lag in partition_lags if group_lag.group.exists]
    for group_lag in partition_lags:
        if not group_lag.group.exists:
            note(f"Error: Consumer group '{group_lag.group.group}' does not exist.")
    if chosen.json:
        print_json([as_json(group_lag) for group_lag in found])
    else:
        rows = [
            [*cells(row.progress), *_cells(row)]
            for group_lag in found
            for row in group_lag.partitions
        ]
        if rows:
            print_table((*columns, *LAG_COLUMNS), rows)
    late = [group_lag for group_lag in found if _is_late(group_lag, chosen)]
    for group_lag in found:
        if group_lag.verdict > Verdict.OK or group_lag in late:
            note(
                f"Consumer group '{group_lag.group.group}' is {group_lag.verdict.name}, "
                f"lag {group_lag.records}."
            )
    return 1 if late or len(found) < len(partition_lags) else 0


async def _group_lags(admin: Admin, chosen: argparse.Namespace) -> list[GroupLag]:
    names = chosen.names or [group.group for group in await admin.list_groups()]
    groups = await asyncio.gather(*map(admin.describe_group, names))
    histories = await histories_if_readable(
        admin, [group.group for group in groups if group.exists]
    )
    return [
        GroupLag(
            group,
            await partition_lags(admin, group, histories.get(group.group)) if group.exists else [],
        )
        for group in groups
    ]


async def partition_lags(
    admin: Admin,
    group: GroupDescription,
    history: History | None,
    now_ms: Callable[[], int] | None = None,
) -> list[PartitionLag]:
    """How ``group`` stands in every partition that it has committed or was given.

    There is no verdict without a ``history``. Raises KafkaError.
    """
    rows = await admin.progress(group)
    now = (now_ms or _wall_clock_ms)()
    topic_partitions = {
        TopicPartition(row.topic, row.partition): row
        for row in rows
        if row.topic is not None and row.partition is not None
    }
    known = {
        topic_partition: row
        for topic_partition, row in topic_partitions.items()
        if _lag(row) is not None
    }
    unread = await first_unread_ms(
        admin.cluster, {topic_partition: _unread(row) for topic_partition, row in known.items()}
    )
    verdicts = await _verdicts(admin, known, history, now)
    standing = []
    for row in rows:
        topic_partition = TopicPartition(row.topic or "", row.partition or 0)
        seconds = (
            seconds_behind(unread[topic_partition], now) if topic_partition in unread else None
        )
        standing.append(
            PartitionLag(row, _lag(row), seconds, verdicts.get(topic_partition, Verdict.NOTFOUND))
        )
    return standing


async def histories_if_readable(admin: Admin, groups: Sequence[str]) -> Mapping[str, History]:
    """What the groups committed lately; nothing for who may not read the offsets topic."""
    try:
        return await read_histories(admin, groups, commits=BURROW.commits)
    except KafkaError as error:
        if error.code not in _NO_HISTORY:
            raise
        return {}


async def _verdicts(
    admin: Admin, known: Mapping[TopicPartition, Progress], history: History | None, now: int
) -> dict[TopicPartition, Verdict]:
    if history is None:
        return {}
    commits = {
        topic_partition: _commits(history, topic_partition, row, now)
        for topic_partition, row in known.items()
    }
    asked = {
        topic_partition: [now - _RECENT_MS, *(commit.timestamp_ms for commit in seen)]
        for topic_partition, seen in commits.items()
    }
    ends = await ends_at(admin.cluster, asked)
    verdicts = {}
    for topic_partition, row in known.items():
        end = row.log_end_offset or 0
        earlier, *then = (
            end if known_end is None else known_end for known_end in ends[topic_partition]
        )
        verdicts[topic_partition] = evaluate(
            [
                CommitSample(seen.offset, seen.timestamp_ms, lag_of(seen.offset, 0, ended).records)
                for seen, ended in zip(commits[topic_partition], then, strict=True)
            ],
            end=end,
            earlier_ends=[earlier],
            log_start=row.log_start_offset or 0,
            now_ms=now,
        )
    return verdicts


def _commits(
    history: History, topic_partition: TopicPartition, row: Progress, now: int
) -> Sequence[SeenCommit]:
    """The commits that the log shows, and the one that it does not.

    That is one made since the log was read, or before anything that was read of it.
    """
    assert row.current_offset is not None
    seen = list(history.commits.get(topic_partition, ()))
    if not seen:
        return [SeenCommit(row.current_offset, history.since_ms or now)]
    if seen[-1].offset != row.current_offset:
        seen.append(SeenCommit(row.current_offset, now))
    return seen


def _lag(row: Progress) -> Lag | None:
    if row.current_offset is None or row.log_end_offset is None:
        return None
    return lag_of(row.current_offset, row.log_start_offset or 0, row.log_end_offset)


def _unread(row: Progress) -> UnreadRange:
    return UnreadRange(
        unread_from(row.current_offset or 0, row.log_start_offset or 0), row.log_end_offset or 0
    )


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _is_late(standing: GroupLag, chosen: argparse.Namespace) -> bool:
    too_many = chosen.max_lag is not None and standing.records > chosen.max_lag
    seconds = standing.seconds
    return too_many or (
        chosen.max_seconds is not None and seconds is not None and seconds > chosen.max_seconds
    )


def _cells(row: PartitionLag) -> list[object]:
    seconds = None if row.seconds is None else f"{row.seconds:.3f}"
    verdict = None if row.verdict is Verdict.NOTFOUND else row.verdict.name
    return [shown(seconds), shown(verdict), shown(row.note)]


def as_json(standing: GroupLag) -> dict[str, Any]:
    """One group for programs."""
    return {
        "group": standing.group.group,
        "state": standing.group.state,
        "verdict": standing.verdict.name,
        "lag": standing.records,
        "lag_seconds": standing.seconds,
        "partitions": [_partition_as_json(partition) for partition in standing.partitions],
    }


def _partition_as_json(row: PartitionLag) -> dict[str, Any]:
    progress, member = row.progress, row.progress.member
    return {
        "topic": progress.topic,
        "partition": progress.partition,
        "current_offset": progress.current_offset,
        "log_start_offset": progress.log_start_offset,
        "log_end_offset": progress.log_end_offset,
        "lag": row.lag and row.lag.records,
        "lag_seconds": row.seconds,
        "verdict": row.verdict.name,
        "is_below_log_start": row.lag and row.lag.is_below_log_start,
        "is_beyond_end": row.lag and row.lag.is_beyond_end,
        "consumer_id": member and member.member_id,
        "host": member and member.host,
        "client_id": member and member.client_id,
    }
