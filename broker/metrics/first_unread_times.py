"""When the first unread record of each group and partition was written, looked up once each.

A group that does not move costs nothing in the next round; the rest is asked of the leaders, each
partition once a turn. Source: docs/spec/users.md §3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

from barnabas.client.admin.time_lag import UnreadRange, first_unread_ms
from barnabas.client.cluster import Cluster, TopicPartition

READS_MAX: Final = 2_000
"""So many records are looked up at once; who is left out has another turn."""
WITHIN_MS: Final = 1_000
"""Close enough for a metric: records deep in a large batch would hold the loop up."""

GroupPartition = tuple[str, TopicPartition]
"""A group and a partition."""


class FirstUnreadTimes:
    """Remembers what was found for as long as it is asked for."""

    def __init__(self) -> None:
        self._known: dict[GroupPartition, tuple[int, int]] = {}
        """The position that a timestamp was looked up for, and the timestamp."""

    async def look(
        self, cluster: Cluster, unread: Mapping[GroupPartition, UnreadRange]
    ) -> Mapping[GroupPartition, int | None]:
        """As :func:`first_unread_ms`, for several groups that read the same partitions."""
        times: dict[GroupPartition, int | None] = {}
        queues: dict[TopicPartition, list[GroupPartition]] = defaultdict(list)
        reads = 0
        for group_partition, (start, end) in unread.items():
            former = self._known.get(group_partition)
            if start >= end:
                times[group_partition] = None
            elif former is not None and former[0] == start:
                times[group_partition] = former[1]
            elif reads < READS_MAX:
                reads += 1
                queues[group_partition[1]].append(group_partition)
        for turn in zip_longest(*queues.values()):
            asked = {
                group_partition[1]: group_partition
                for group_partition in turn
                if group_partition is not None
            }
            found = await first_unread_ms(
                cluster,
                {
                    partition: unread[group_partition]
                    for partition, group_partition in asked.items()
                },
                within_ms=WITHIN_MS,
            )
            times.update((asked[partition], stamp) for partition, stamp in found.items())
        self._known = {
            group_partition: (unread[group_partition].start, stamp)
            for group_partition, stamp in times.items()
            if stamp is not None
        }
        return times
