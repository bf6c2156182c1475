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
from barnabas.client.admin.time_lag import Range
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

from .first_unread_times import Place, UnreadTimes

log = logging.getLogger(__name__)

SLICE_S: Final = 0.002
"""The longest that a round keeps the loop to itself."""
OFFSETS_MAX: Final = 50_000
"""So many committed offsets have their lag found; groups beyond are counted without."""


@dataclass(frozen=True, slots=True)
class PartitionStanding:
    """One partition of a group; ``seconds`` None when they are not known."""

    committed: int
    lag: Lag
    seconds: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class GroupStanding:
    """One group; ``partitions`` has those whose ends are known."""

    seen: GroupSummary
    partitions: Mapping[TopicPartition, PartitionStanding]

    @property
    def verdict(self) -> Verdict:
        """That of the worst partition."""
        return evaluate_group(each.verdict for each in self.partitions.values())


@dataclass(slots=True)
class Result:
    """What the last round found."""

    groups: Sequence[GroupStanding] = ()
    bounds: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Where the logs began and ended that some group reads."""
    beyond: int = 0
    """Committed offsets that were too many to have their lag found."""


class Survey:
    """Looks every ``interval_ms``; ``result`` is what the last look found, never half of one."""

    def __init__(
        self,
        directory: GroupRegistry,
        admin: Callable[[], Admin],
        *,
        interval_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self.result = Result()
        self._directory = directory
        self._admin = admin
        self._interval_s = interval_ms / 1000
        self._now_ms = now_ms
        self._clock = asyncio.get_running_loop().time
        self._windows: CommitWindows[Place] = CommitWindows()
        self._ends: dict[TopicPartition, array[int]] = {}
        self._times = UnreadTimes()

    async def run(self) -> None:
        """Look until cancelled."""
        async with self._admin() as admin:
            while True:
                try:
                    self.result = await self.round(admin)
                except KafkaError as error:
                    log.info("could not look at lag: %s", error)
                await asyncio.sleep(self._interval_s)

    async def round(self, admin: Admin) -> Result:
        """One look at everything; raises KafkaError when leaders refuse."""
        groups, beyond = await self._look()
        places = sorted({TopicPartition(*each) for seen in groups for each in seen.offsets})
        # first what is committed, then where logs end: the other way round lag would be too small
        ends = await admin.end_offsets(places)
        starts = await admin.start_offsets(places)
        bounds = {
            place: (starts[place], max(starts[place], end))
            for place, end in ends.items()
            if place in starts
        }
        earlier = self._earlier_ends(bounds)
        seconds = await self._seconds(admin, groups, bounds)
        standings = []
        until = self._clock() + SLICE_S
        for seen in groups:
            standings.append(self._judged(seen, bounds, earlier, seconds))
            if self._clock() >= until:
                await asyncio.sleep(0)
                until = self._clock() + SLICE_S
        self._windows.keep(
            {(each.seen.group_id, place) for each in standings for place in each.partitions}
        )
        return Result(standings, bounds, beyond)

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
        for place in self._ends.keys() - bounds.keys():
            del self._ends[place]
        earlier = {place: list(self._ends.get(place, ())) for place in bounds}
        for place, (_, end) in bounds.items():
            kept = self._ends.setdefault(place, array("q"))
            kept.append(end)
            del kept[: -BURROW.commits]
        return earlier

    async def _seconds(
        self,
        admin: Admin,
        groups: Sequence[GroupSummary],
        bounds: Mapping[TopicPartition, tuple[int, int]],
    ) -> Mapping[Place, float | None]:
        """The lag in seconds, of the partitions for which it could be found."""
        unread: dict[Place, Range] = {}
        for seen in groups:
            for pair, commit in seen.offsets.items():
                if (place := TopicPartition(*pair)) in bounds:
                    start, end = bounds[place]
                    unread[seen.group_id, place] = Range(unread_from(commit.offset, start), end)
        times = await self._times.look(admin.cluster, unread)
        now = self._now_ms()
        return {place: seconds_behind(stamp, now) for place, stamp in times.items()}

    def _judged(
        self,
        seen: GroupSummary,
        bounds: Mapping[TopicPartition, tuple[int, int]],
        earlier: Mapping[TopicPartition, Sequence[int]],
        seconds: Mapping[Place, float | None],
    ) -> GroupStanding:
        now = self._now_ms()
        partitions = {}
        for pair, commit in seen.offsets.items():
            place = TopicPartition(*pair)
            if place not in bounds:
                continue
            start, end = bounds[place]
            key = (seen.group_id, place)
            lag = lag_of(commit.offset, start, end)
            step = CommitSample(commit.offset, commit.committed_ms, lag.records)
            self._windows.saw(key, commit.record_offset, step)
            verdict = evaluate(
                self._windows.steps(key),
                end=end,
                earlier_ends=earlier[place],
                log_start=start,
                now_ms=now,
            )
            partitions[place] = PartitionStanding(commit.offset, lag, seconds.get(key), verdict)
        return GroupStanding(seen, partitions)
