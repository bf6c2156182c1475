"""Log start offsets, log end offsets and offsets by time, asked of the leaders.

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
        return {
            topic_partition: None if offset == _NO_OFFSET else offset
            for topic_partition, offset in found.items()
        }

    async def _offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Ask all leaders at once, then once more for those whose leader moved meanwhile."""
        missing = list(partitions)
        found: dict[TopicPartition, int] = {}
        for _ in range(_ROUNDS):
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for topic_partition, leader in (await self.cluster.leaders(missing)).items():
                by_leader[leader].append(topic_partition)
            asked = (self._offsets_of(*asked_of, timestamp) for asked_of in by_leader.items())
            for offsets in await asyncio.gather(*asked):
                found.update(offsets)
            missing = [
                topic_partition for topic_partition in missing if topic_partition not in found
            ]
            if not missing:
                break
            self.cluster.forget_leaders(missing)
        return found

    async def _offsets_of(
        self, leader: int, topic_partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list[list_offsets.Partition]] = defaultdict(list)
        for topic_partition in topic_partitions:
            topics[topic_partition.topic].append(
                list_offsets.Partition(
                    partition_index=topic_partition.partition, timestamp=timestamp
                )
            )
        asked = [
            list_offsets.Topic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
        request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=asked)
        try:
            answer = await self.cluster.ask(leader, request)
        except KafkaError as error:
            if not error.retriable:
                raise
            return {}
        return {
            TopicPartition(topic.name, partition.partition_index): partition.offset
            for topic in answer.topics
            for partition in topic.partitions
            if not partition.error_code
        }
