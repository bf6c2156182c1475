"""Where a group stood in the past: its commits as the offsets topic remembers them, and log ends.

Nothing has to have been collected: `__consumer_offsets` keeps the latest commits until it is
compacted, and a log knows by its timestamps where it ended at a time.
Source: docs/spec/console.md §1 (timeline); docs/spec/users.md §3.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.commit_history import (
    SeenCommit,
    ends_at,
    read_histories,
)
from barnabas.client.admin.rebalance_history import SeenGeneration
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode

from .reading import now_ms

POINTS: Final = 24
COMMITS_MOST: Final = 400
"""Of each partition."""
RECORDS_MOST: Final = 100_000
PARTITIONS_MOST: Final = 100
SPAN_MOST_MS: Final = 24 * 3_600_000
SPAN_LEAST_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Point:
    """All partitions together at one time; only those whose committed offset is known then."""

    at_ms: int
    committed: int
    end: int
    partitions: int

    @property
    def lag(self) -> int:
        """Records that were still to be read."""
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Points in the order of time; ``partitions`` are those that were looked at, of ``all``."""

    points: Sequence[Point]
    partitions: int
    all: int
    generations: Sequence[SeenGeneration] = ()
    """Rebalances, oldest first."""


async def timeline_of(admin: Admin, group: str) -> Timeline:
    """What is still known of a group's last day; no points where nothing is. Raises KafkaError."""
    try:
        histories = await read_histories(
            admin, [group], commits=COMMITS_MOST, records_max=RECORDS_MOST, with_generations=True
        )
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        histories = {}
    known = histories[group].commits if group in histories else {}
    generations = list(histories[group].generations) if group in histories else []
    seen = {place: list(known[place]) for place in sorted(known)[:PARTITIONS_MOST] if known[place]}
    if not seen:
        return Timeline([], 0, len(known), generations)
    times = _times(min(commits[0].timestamp_ms for commits in seen.values()), now_ms())
    ends = await ends_at(admin.cluster, dict.fromkeys(seen, times))
    current = await admin.end_offsets(seen)
    points = [_point(at, index, seen, ends, current) for index, at in enumerate(times)]
    shown = [point for point in points if point.partitions]
    return Timeline(shown, len(seen), len(known), generations)


def _times(first_ms: int, last_ms: int) -> list[int]:
    start = min(max(first_ms, last_ms - SPAN_MOST_MS), last_ms - SPAN_LEAST_MS)
    step = (last_ms - start) / (POINTS - 1)
    return [round(start + step * number) for number in range(POINTS)]


def _point(
    at: int,
    index: int,
    seen: Mapping[TopicPartition, Sequence[SeenCommit]],
    ends: Mapping[TopicPartition, Sequence[int | None]],
    current: Mapping[TopicPartition, int],
) -> Point:
    committed = end = partitions = 0
    for place, commits in seen.items():
        number = bisect_right(commits, at, key=lambda commit: commit.timestamp_ms)
        there = ends[place][index]
        ended = current.get(place) if there is None else there
        if number and ended is not None:
            # A group may stand beyond the end of a log that was made anew: no lag, no negative one.
            committed += min(commits[number - 1].offset, ended)
            end += ended
            partitions += 1
    return Point(at, committed, end, partitions)
