"""When the first unread record of each group and partition was written, looked up once each.

A group that does not move costs nothing in the next round; the rest is asked of the leaders, each
partition once a turn. Source: docs/spec/users.md §3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import zip_longest
from typing import Final

from barnabas.client.admin.time_lag import Range, first_unread_ms
from barnabas.client.cluster import Cluster, TopicPartition

READS_MAX: Final = 2_000
"""So many records are looked up at once; who is left out has another turn."""
WITHIN_MS: Final = 1_000
"""Close enough for a metric: records deep in a large batch would hold the loop up."""

Place = tuple[str, TopicPartition]
"""A group and a partition."""


class UnreadTimes:
    """Remembers what was found for as long as it is asked for."""

    def __init__(self) -> None:
        self._known: dict[Place, tuple[int, int]] = {}
        """The position that a timestamp was looked up for, and the timestamp."""

    async def look(
        self, cluster: Cluster, unread: Mapping[Place, Range]
    ) -> Mapping[Place, int | None]:
        """As :func:`first_unread_ms`, for several groups that read the same partitions."""
        times: dict[Place, int | None] = {}
        queues: dict[TopicPartition, list[Place]] = defaultdict(list)
        reads = 0
        for place, (start, end) in unread.items():
            former = self._known.get(place)
            if start >= end:
                times[place] = None
            elif former is not None and former[0] == start:
                times[place] = former[1]
            elif reads < READS_MAX:
                reads += 1
                queues[place[1]].append(place)
        for turn in zip_longest(*queues.values()):
            asked = {place[1]: place for place in turn if place is not None}
            found = await first_unread_ms(
                cluster,
                {partition: unread[place] for partition, place in asked.items()},
                within_ms=WITHIN_MS,
            )
            times.update((asked[partition], stamp) for partition, stamp in found.items())
        self._known = {
            place: (unread[place].start, stamp)
            for place, stamp in times.items()
            if stamp is not None
        }
        return times
