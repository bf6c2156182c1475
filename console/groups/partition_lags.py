"""How groups stand in each partition: lag in records and seconds, and the verdict on it.

For one group, or for hundreds with the same few questions: each leader is asked once for all of
them. Source: docs/spec/users.md §3 (definition, verdicts); docs/spec/console.md §5 (budgets).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.bulk_group_admin import BulkGroupAdmin
from barnabas.client.admin.commit_history import History, SeenCommit, ends_at
from barnabas.client.admin.descriptions import GroupDescription, Progress
from barnabas.client.admin.group_admin import partitions_of, progress_of
from barnabas.client.admin.time_lag import UnreadRange, first_unread_ms
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.client.turns import Turns
from barnabas.coordinator.group_health import (
    BURROW,
    END_EVERY_MS,
    CommitSample,
    Verdict,
    evaluate,
    evaluate_group,
)
from barnabas.coordinator.lag import Lag, lag_of, seconds_behind, unread_from

from .unread_times import Place, UnreadTimes

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


async def partition_lags(
    admin: Admin,
    group: GroupDescription,
    history: History | None,
    now_ms: Callable[[], int] | None = None,
) -> list[PartitionLag]:
    """How ``group`` stands in every partition that it has committed or was given.

    There is no verdict without a ``history``. Raises KafkaError.
    """
    rows = {group.group: await admin.progress(group)}
    histories = {} if history is None else {group.group: history}
    return (await _standing(admin, rows, histories, now_ms or _wall_clock_ms))[group.group]


async def lags_of_groups(
    admin: Admin,
    groups: Sequence[GroupDescription],
    histories: Mapping[str, History],
    unread: UnreadTimes | None = None,
) -> dict[str, list[PartitionLag] | KafkaError]:
    """As :func:`partition_lags` of each group, with a few questions for all of them.

    ``unread`` is for who asks again. What cannot be had of one group is told in its stead. Raises
    KafkaError.
    """
    failed: dict[str, list[PartitionLag] | KafkaError] = {}
    committed = {}
    for group, offsets in (
        await BulkGroupAdmin(admin).committed([group.group for group in groups])
    ).items():
        if isinstance(offsets, KafkaError):
            failed[group] = offsets
        else:
            committed[group] = offsets
    read = [group for group in groups if group.group in committed]
    turns = Turns()
    places: set[TopicPartition] = set()
    for one in read:
        places.update(partitions_of(one, committed[one.group]))
        await turns.pause()
    ends, starts = await asyncio.gather(admin.end_offsets(places), admin.start_offsets(places))
    rows = {}
    for one in read:
        rows[one.group] = progress_of(one, committed[one.group], starts, ends)
        await turns.pause()
    return {**failed, **await _standing(admin, rows, histories, _wall_clock_ms, unread)}


@dataclass(slots=True)
class _Questions:
    """What has to be asked about those partitions in which there is something left to read.

    Where there is not, a group is well and no second behind, whatever was before.
    """

    unread: dict[Place, UnreadRange] = field(default_factory=dict)
    commits: dict[Place, Sequence[SeenCommit]] = field(default_factory=dict)


async def _standing(
    admin: Admin,
    rows: Mapping[str, Sequence[Progress]],
    histories: Mapping[str, History],
    now_ms: Callable[[], int],
    known: UnreadTimes | None = None,
) -> dict[str, list[PartitionLag]]:
    now = now_ms()
    turns = Turns()
    asked = _Questions()
    for group, of_group in rows.items():
        _add_questions(asked, group, of_group, histories.get(group), now)
        await turns.pause()
    unread, ends = await asyncio.gather(
        _first_unread(admin, asked.unread, known or UnreadTimes()),
        _ends_then(admin, asked.commits, now),
    )
    found = {}
    for group, of_group in rows.items():
        is_judged = group in histories
        found[group] = [
            _partition_lag(row, (group, _place(row)), asked, is_judged, unread, ends, now)
            for row in of_group
        ]
        await turns.pause()
    return found


def _add_questions(
    asked: _Questions, group: str, rows: Iterable[Progress], history: History | None, now: int
) -> None:
    for row in rows:
        if not row.lag:
            continue
        place = group, _place(row)
        asked.unread[place] = UnreadRange(
            unread_from(row.current_offset or 0, row.log_start_offset or 0),
            row.log_end_offset or 0,
        )
        if history is not None:
            asked.commits[place] = _commits(history, place[1], row, now)


def _partition_lag(
    row: Progress,
    place: Place,
    asked: _Questions,
    is_judged: bool,
    unread: Mapping[Place, int | None],
    ends: Mapping[Place, Sequence[int | None]],
    now: int,
) -> PartitionLag:
    if row.current_offset is None or row.log_end_offset is None:
        return PartitionLag(row, None, None, Verdict.NOTFOUND)
    lag = lag_of(row.current_offset, row.log_start_offset or 0, row.log_end_offset)
    if not lag.records:
        verdict = Verdict.OK if is_judged else Verdict.NOTFOUND
        return PartitionLag(row, lag, seconds_behind(None, now), verdict)
    seconds = seconds_behind(unread[place], now) if place in unread else None
    verdict = Verdict.NOTFOUND
    if is_judged:
        verdict = _verdict(row, asked.commits[place], ends[place], now)
    return PartitionLag(row, lag, seconds, verdict)


async def _first_unread(
    admin: Admin, asked: Mapping[Place, UnreadRange], known: UnreadTimes
) -> dict[Place, int | None]:
    """A partition that groups read from different offsets on is asked for once for each."""
    by_range: dict[tuple[TopicPartition, UnreadRange], list[str]] = defaultdict(list)
    found: dict[Place, int | None] = {}
    for (group, place), unread in asked.items():
        time_ms = known.of((group, place), unread.start)
        if time_ms is None:
            by_range[place, unread].append(group)
        else:
            found[group, place] = time_ms
    while by_range:
        ranges: dict[TopicPartition, UnreadRange] = {}
        for place, unread in by_range:
            ranges.setdefault(place, unread)
        times = await first_unread_ms(admin.cluster, ranges)
        for place, unread in ranges.items():
            for group in by_range.pop((place, unread)):
                if place in times:
                    found[group, place] = times[place]
                    known.note((group, place), unread.start, times[place])
    return found


async def _ends_then(
    admin: Admin, asked: Mapping[Place, Sequence[SeenCommit]], now: int
) -> dict[Place, Sequence[int | None]]:
    """Where each log ended a while ago, and when each commit was made; None: where it ends now."""
    times: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for (_, place), commits in asked.items():
        of_place = times[place]
        for time_ms in (now - _RECENT_MS, *(commit.timestamp_ms for commit in commits)):
            of_place.setdefault(time_ms, len(of_place))
    ends = await ends_at(admin.cluster, {place: list(known) for place, known in times.items()})
    return {
        (group, place): [
            ends[place][times[place][time_ms]]
            for time_ms in (now - _RECENT_MS, *(commit.timestamp_ms for commit in commits))
        ]
        for (group, place), commits in asked.items()
    }


def _verdict(
    row: Progress, commits: Sequence[SeenCommit], ends: Sequence[int | None], now: int
) -> Verdict:
    end = row.log_end_offset or 0
    earlier, *then = (end if known is None else known for known in ends)
    return evaluate(
        [
            CommitSample(seen.offset, seen.timestamp_ms, lag_of(seen.offset, 0, ended).records)
            for seen, ended in zip(commits, then, strict=True)
        ],
        end=end,
        earlier_ends=[earlier],
        log_start=row.log_start_offset or 0,
        now_ms=now,
    )


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


def _place(row: Progress) -> TopicPartition:
    return TopicPartition(row.topic or "", row.partition or 0)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
