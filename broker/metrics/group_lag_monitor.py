"""A regular look at every group that is coordinated here: its lag, in records and in seconds.

The coordinator knows what is committed, the leaders know where logs end and what was written
when: they are asked as any client asks them, once a round and all together.
Source: docs/spec/users.md §3 and §4.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.time_lag import UnreadRange
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.coordinator.commit_windows import CommitWindows
from barnabas.coordinator.group_health import (
    BURROW,
    CommitSample,
    Verdict,
    evaluate,
    evaluate_group,
)
from barnabas.coordinator.group_registry import GroupRegistry
from barnabas.coordinator.group_summary import GroupSummary, group_summaries
from barnabas.coordinator.lag import Lag, lag_of, seconds_behind, unread_from

from .first_unread_times import FirstUnreadTimes, GroupPartition

log = logging.getLogger(__name__)

SLICE_S: Final = 0.002
"""The longest that a round keeps the loop to itself."""
OFFSETS_MAX: Final = 50_000
"""So many committed offsets have their lag found; groups beyond are counted without."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group; ``seconds`` None when they are not known."""

    committed: int
    lag: Lag
    seconds: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class GroupLag:
    """One group; ``partitions`` has those whose ends are known."""

    seen: GroupSummary
    partitions: Mapping[TopicPartition, PartitionLag]

    @property
    def verdict(self) -> Verdict:
        """That of the worst partition."""
        return evaluate_group(partition.verdict for partition in self.partitions.values())


@dataclass(slots=True)
class LagReport:
    """What the last round found."""

    groups: Sequence[GroupLag] = ()
    bounds: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Where the logs began and ended that some group reads."""
    beyond: int = 0
    """Committed offsets that were too many to have their lag found."""
    at_ms: int | None = None
    """When it was made, ms since 1970; None before the first round."""


class GroupLagMonitor:
    """Looks every ``interval_ms``; ``result`` is what the last look found, never half of one."""

    def __init__(
        self,
        directory: GroupRegistry,
        admin: Callable[[], Admin],
        *,
        interval_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.result = LagReport()
        self._directory = directory
        self._admin = admin
        self._interval_s = interval_ms / 1000
        self._now_ms = now_ms
        self._clock = asyncio.get_running_loop().time
        self._windows: CommitWindows[GroupPartition] = CommitWindows()
        self._ends: dict[TopicPartition, array[int]] = {}
        self._times = FirstUnreadTimes()

    async def run(self) -> None:
        """Look until cancelled."""
        async with self._admin() as admin:
            while True:
                try:
                    self.result = await self.round(admin)
                except KafkaError as error:
                    log.info("could not look at lag: %s", error)
                except Exception:  # what only tells must not end a node
                    log.exception("could not look at lag")
                await asyncio.sleep(self._interval_s)

    async def round(self, admin: Admin) -> LagReport:
        """One look at everything; raises KafkaError when leaders refuse."""
        groups, beyond = await self._look()
        topic_partitions = sorted(
            {TopicPartition(*partition) for seen in groups for partition in seen.offsets}
        )
        # first what is committed, then where logs end: the other way round lag would be too small
        ends = await admin.end_offsets(topic_partitions)
        starts = await admin.start_offsets(topic_partitions)
        bounds = {
            topic_partition: (starts[topic_partition], max(starts[topic_partition], end))
            for topic_partition, end in ends.items()
            if topic_partition in starts
        }
        earlier = self._earlier_ends(bounds)
        seconds = await self._seconds(admin, groups, bounds)
        lags = []
        until = self._clock() + SLICE_S
        for seen in groups:
            lags.append(self._evaluated(seen, bounds, earlier, seconds))
            if self._clock() >= until:
                await asyncio.sleep(0)
                until = self._clock() + SLICE_S
        self._windows.retain(
            {
                (lag.seen.group_id, topic_partition)
                for lag in lags
                for topic_partition in lag.partitions
            }
        )
        return LagReport(lags, bounds, beyond, self._now_ms())

    async def _look(self) -> tuple[list[GroupSummary], int]:
        groups: list[GroupSummary] = []
        room, beyond = OFFSETS_MAX, 0
        until = self._clock() + SLICE_S
        for seen in group_summaries(self._directory):
            room -= len(seen.offsets)
            if room >= 0:
                groups.append(seen)
            else:
                beyond += len(seen.offsets)
                groups.append(seen._replace(offsets={}))
            if self._clock() >= until:
                await asyncio.sleep(0)
                until = self._clock() + SLICE_S
        return groups, beyond

    def _earlier_ends(
        self, bounds: Mapping[TopicPartition, tuple[int, int]]
    ) -> Mapping[TopicPartition, Sequence[int]]:
        """Where logs ended in the rounds before this one, which is noted for the next."""
        for topic_partition in self._ends.keys() - bounds.keys():
            del self._ends[topic_partition]
        earlier = {
            topic_partition: list(self._ends.get(topic_partition, ())) for topic_partition in bounds
        }
        for topic_partition, (_, end) in bounds.items():
            kept = self._ends.setdefault(topic_partition, array("q"))
            kept.append(end)
            del kept[: -BURROW.commits]
        return earlier

    async def _seconds(
        self,
        admin: Admin,
        groups: Sequence[GroupSummary],
        bounds: Mapping[TopicPartition, tuple[int, int]],
    ) -> Mapping[GroupPartition, float | None]:
        """The lag in seconds, of the partitions for which it could be found."""
        unread: dict[GroupPartition, UnreadRange] = {}
        for seen in groups:
            for pair, commit in seen.offsets.items():
                if (topic_partition := TopicPartition(*pair)) in bounds:
                    start, end = bounds[topic_partition]
                    unread[seen.group_id, topic_partition] = UnreadRange(
                        unread_from(commit.offset, start), end
                    )
        times = await self._times.look(admin.cluster, unread)
        now = self._now_ms()
        return {
            topic_partition: seconds_behind(stamp, now) for topic_partition, stamp in times.items()
        }

    def _evaluated(
        self,
        seen: GroupSummary,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        earlier: Mapping[TopicPartition, Sequence[int]],
        seconds: Mapping[GroupPartition, float | None],
    ) -> GroupLag:
        now = self._now_ms()
        partitions = {}
        for pair, commit in seen.offsets.items():
            topic_partition = TopicPartition(*pair)
            if topic_partition not in bounds:
                continue
            start, end = bounds[topic_partition]
            key = (seen.group_id, topic_partition)
            lag = lag_of(commit.offset, start, end)
            step = CommitSample(commit.offset, commit.committed_ms, lag.records)
            self._windows.add_sample(key, commit.record_offset, step)
            verdict = evaluate(
                self._windows.samples(key),
                end=end,
                earlier_ends=earlier[topic_partition],
                log_start=start,
                now_ms=now,
            )
            partitions[topic_partition] = PartitionLag(
                commit.offset, lag, seconds.get(key), verdict
            )
        return GroupLag(seen, partitions)
