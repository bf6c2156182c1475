"""Where logs begin and end, and the offset that a time leads to, asked of the leaders.

Source: docs/spec/protocol.md §2 (ListOffsets); docs/spec/users.md §2.1 (what kafka-consumer-groups
asks).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.protocol.messages import list_offsets

LATEST: Final = -1
EARLIEST: Final = -2
_NO_OFFSET: Final = -1
_ROUNDS: Final = 2


class LogOffsets:
    """Asks leaders for offsets; a partition whose leader cannot be asked is left out of answers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition; one whose leader cannot be asked is left out."""
        return await self._offsets(partitions, LATEST)

    async def start_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset still kept, of each partition whose leader can be asked."""
        return await self._offsets(partitions, EARLIEST)

    async def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int | None]:
        """The first record stamped ``timestamp_ms`` or later; None where there is none."""
        assert timestamp_ms >= 0, timestamp_ms
        found = await self._offsets(partitions, timestamp_ms)
        return {place: None if offset == _NO_OFFSET else offset for place, offset in found.items()}

    async def _offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Ask all leaders at once, then once more for those whose leader moved meanwhile."""
        missing = list(partitions)
        found: dict[TopicPartition, int] = {}
        for _ in range(_ROUNDS):
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for place, leader in (await self.cluster.leaders(missing)).items():
                by_leader[leader].append(place)
            asked = (self._offsets_of(*each, timestamp) for each in by_leader.items())
            for offsets in await asyncio.gather(*asked):
                found.update(offsets)
            missing = [place for place in missing if place not in found]
            if not missing:
                break
            self.cluster.forget_leaders(missing)
        return found

    async def _offsets_of(
        self, leader: int, places: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list[list_offsets.Partition]] = defaultdict(list)
        for place in places:
            topics[place.topic].append(
                list_offsets.Partition(partition_index=place.partition, timestamp=timestamp)
            )
        asked = [list_offsets.Topic(name=name, partitions=each) for name, each in topics.items()]
        request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=asked)
        try:
            answer = await self.cluster.ask(leader, request)
        except KafkaError as error:
            if not error.retriable:
                raise
            return {}
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code
        }
