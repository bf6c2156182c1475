"""How ranges of offsets become tasks, and how a limit is shared between partitions.

Both are the formulas of Spark's Kafka connector. Source: docs/spec/pipeline.md §3.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from barnabas.client.cluster import TopicPartition

from .offsets_json import Offsets


class OffsetRange(NamedTuple):
    """The offsets of one partition from ``start`` up to, not including, ``end``."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """Offsets in it; compaction leaves fewer records."""
        return self.end - self.start


def limited(start: Offsets, latest: Offsets, most: int) -> dict[TopicPartition, int]:
    """Where a batch of about ``most`` offsets ends: each partition has its share of the backlog.

    The smallest partitions get one offset at least, so that none starves. Partitions that are not
    in ``start`` are not in the result either.
    """
    sizes = {
        topic_partition: max(0, latest[topic_partition] - start[topic_partition])
        for topic_partition in latest
        if topic_partition in start
    }
    total = sum(sizes.values())
    if total <= most:
        return {
            topic_partition: start[topic_partition] + size
            for topic_partition, size in sizes.items()
        }
    ends = {}
    for topic_partition, size in sizes.items():
        share = most * (size / total)
        count = math.ceil(share) if share < 1 else math.floor(share)
        ends[topic_partition] = min(start[topic_partition] + count, latest[topic_partition])
    return ends


def split(
    ranges: Iterable[OffsetRange], *, tasks_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """The ranges that tasks read, one each, empty ones left out.

    One task a partition, unless ``records_max`` bounds a task or ``tasks_min`` asks for more:
    then large partitions are divided evenly, in proportion to their size.
    """
    whole = [wanted for wanted in ranges if wanted.size > 0]
    parts = []
    for wanted in whole:
        count = math.ceil(wanted.size / records_max) if records_max else 1
        parts += _divided(wanted, count)
    if tasks_min and len(parts) < tasks_min:
        total = sum(wanted.size for wanted in whole)
        parts = []
        for wanted in whole:
            count = max(1, round(wanted.size / total * tasks_min))
            if records_max:
                count = max(count, math.ceil(wanted.size / records_max))
            parts += _divided(wanted, count)
    return parts


def _divided(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, whole.size)
    marks = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [OffsetRange(whole.topic_partition, *pair) for pair in pairwise(marks)]
