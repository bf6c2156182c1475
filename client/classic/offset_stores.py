"""Offset stores of classic groups: ZooKeeper, Kafka, or both (dual commit).

Source: docs/spec/coordinator.md §6.7. Stored is always the next offset to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Protocol

from barnabas.client.errors import KafkaError, known_code, raise_for
from barnabas.client.topology import TopicPartition
from barnabas.client.zookeeper.interface import NodeExists, NoNode, ZooKeeper, ZooKeeperError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_commit, offset_fetch
from barnabas.protocol.zookeeper import znodes

from .offset_manager import OffsetManager

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]
"""The next offset to read of each partition."""
Failures = dict[TopicPartition, ErrorCode]
"""Why an offset was not stored, for each that was not."""

_MOVED: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class OffsetStore(Protocol):
    """One place, or several that count as one. Commits must not overlap."""

    async def fetch(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The offset of each partition that has one; waits as long as nobody can tell."""
        ...

    async def commit(self, offsets: Offsets, *, retry_for_ms: int = 0) -> Failures:
        """Store; tries again for ``retry_for_ms`` where that may help.

        Raises KafkaError or ZooKeeperError when nobody could be asked.
        """
        ...

    async def close(self) -> None:
        """End the connections that are its own."""


class ZooKeeperOffsetStore:
    """Decimal text in ``/consumers/G/offsets/T/P``; the last writer wins."""

    def __init__(self, zookeeper: ZooKeeper, group: str) -> None:
        self.writes = 0
        """How many offsets were written: this and its like show how far a migration is."""
        self._zookeeper = zookeeper
        self._group = group
        self._last: dict[TopicPartition, int] = {}

    async def fetch(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """What stands there; a text that is no number is passed over with a warning."""
        found = dict(
            zip(
                topic_partitions,
                await asyncio.gather(*map(self._read, topic_partitions)),
                strict=True,
            )
        )
        self._last = {
            topic_partition: offset
            for topic_partition, offset in found.items()
            if offset is not None
        }
        return dict(self._last)

    async def commit(self, offsets: Offsets, *, retry_for_ms: int = 0) -> Failures:
        """Write what differs from what is known to stand there."""
        news = {
            topic_partition: at
            for topic_partition, at in offsets.items()
            if self._last.get(topic_partition) != at
        }
        results = await asyncio.gather(
            *(
                self._write(*topic_partition_and_offset)
                for topic_partition_and_offset in news.items()
            ),
            return_exceptions=True,
        )
        for (topic_partition, offset), result in zip(news.items(), results, strict=True):
            if result is None:
                self._last[topic_partition] = offset
                self.writes += 1
            else:
                self._last.pop(topic_partition, None)
        for result in results:
            if result is not None:
                raise result
        return {}

    async def close(self) -> None:
        """Nothing: the session is its owner's."""

    async def _read(self, topic_partition: TopicPartition) -> int | None:
        path = znodes.consumer_offset_path(
            self._group, topic_partition.topic, topic_partition.partition
        )
        try:
            data, _ = await self._zookeeper.get(path)
            return int(data)
        except NoNode:
            return None
        except ValueError:
            log.warning("passed over an offset that is no number path=%s", path)
            return None

    async def _write(self, topic_partition: TopicPartition, offset: int) -> None:
        path = znodes.consumer_offset_path(
            self._group, topic_partition.topic, topic_partition.partition
        )
        data = str(offset).encode()
        try:
            await self._zookeeper.set(path, data)
        except NoNode:
            with contextlib.suppress(NodeExists):
                await self._zookeeper.create(path, data, parents=True)
                return
            await self._zookeeper.set(path, data)


class KafkaOffsetStore:
    """The offset manager of the group, as the member of no generation.

    Every offset is committed again each time: what a group without members has not committed for
    ``offsets.retention.minutes`` expires.
    """

    def __init__(self, manager: OffsetManager) -> None:
        self.writes = 0
        """How many offsets were accepted."""
        self._manager = manager

    async def fetch(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """What was committed; waits while the coordinator loads, moves or is away."""
        if not topic_partitions:
            return {}
        topics = [
            offset_fetch.Topic(
                name=topic,
                partition_indexes=[topic_partition.partition for topic_partition in of_topic],
            )
            for topic, of_topic in _by_topic(topic_partitions).items()
        ]
        request = offset_fetch.OffsetFetchRequest(group_id=self._manager.group, topics=topics)
        answer = await self._manager.ask(request, _codes_of_fetch, retry_for_ms=None)
        raise_for(answer.error_code, self._manager.group)
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                raise_for(partition.error_code, f"{topic.name}-{partition.partition_index}")
                if partition.committed_offset >= 0:
                    topic_partition = TopicPartition(topic.name, partition.partition_index)
                    found[topic_partition] = partition.committed_offset
        return found

    async def commit(self, offsets: Offsets, *, retry_for_ms: int = 0) -> Failures:
        """Commit all in one request; an offset that was refused for itself stops no other."""
        if not offsets:
            return {}
        topics = [
            offset_commit.Topic(
                name=topic,
                partitions=[
                    offset_commit.Partition(
                        partition_index=topic_partition.partition,
                        committed_offset=offsets[topic_partition],
                        committed_metadata="",
                    )
                    for topic_partition in of_topic
                ],
            )
            for topic, of_topic in _by_topic(offsets).items()
        ]
        request = offset_commit.OffsetCommitRequest(group_id=self._manager.group, topics=topics)
        answer = await self._manager.ask(request, _codes_of_commit, retry_for_ms=retry_for_ms)
        failures = {
            TopicPartition(topic.name, partition.partition_index): known_code(partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
            if partition.error_code
        }
        self.writes += len(offsets) - len(failures)
        return failures

    async def close(self) -> None:
        """End the channel."""
        await self._manager.close()


class DualCommitStore:
    """Two stores: written one after the other, read as the larger of what they hold.

    What the first did not store is not written to the second, so the second is never ahead.
    """

    def __init__(self, first: OffsetStore, second: OffsetStore) -> None:
        self._first = first
        self._second = second

    async def fetch(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The larger offset of each partition that has one in either store.

        What a store lacks is written to it here and now: whoever later reads that store alone,
        in the next step of a migration, need not wait for a commit. So only the owner of the
        partitions may ask, who has nobody commit beside it.
        """
        found = await self._first.fetch(topic_partitions)
        others = await self._second.fetch(topic_partitions)
        larger = {
            topic_partition: max(found.get(topic_partition, -1), others.get(topic_partition, -1))
            for topic_partition in {*found, *others}
        }
        for store, held in ((self._first, found), (self._second, others)):
            behind = {
                topic_partition: at
                for topic_partition, at in larger.items()
                if held.get(topic_partition) != at
            }
            await _write_larger_offsets(store, behind)
        return larger

    async def commit(self, offsets: Offsets, *, retry_for_ms: int = 0) -> Failures:
        """Store in the first, then what that took in the second."""
        failures = await self._first.commit(offsets, retry_for_ms=retry_for_ms)
        stored = {
            topic_partition: at
            for topic_partition, at in offsets.items()
            if topic_partition not in failures
        }
        return failures | await self._second.commit(stored, retry_for_ms=retry_for_ms)

    async def close(self) -> None:
        """Close both."""
        try:
            await self._first.close()
        finally:
            await self._second.close()


async def _write_larger_offsets(store: OffsetStore, behind: Offsets) -> None:
    """The next commit does the same: what goes wrong here is only told."""
    try:
        failures = await store.commit(behind)
    except (KafkaError, ZooKeeperError) as error:
        log.warning("could not bring a store up to the other: %s", error)
        return
    for topic_partition, code in failures.items():
        log.warning("could not bring %s-%d up to the other store: %s", *topic_partition, code.name)


def _by_topic(topic_partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = defaultdict(list)
    for topic_partition in topic_partitions:
        topics[topic_partition.topic].append(topic_partition)
    return topics


def _codes_of_fetch(answer: Any) -> Iterable[int]:
    yield answer.error_code
    yield from (
        partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code in _MOVED
    )


def _codes_of_commit(answer: Any) -> Iterable[int]:
    """Only what concerns the request as a whole: anything else is one partition's own."""
    return (
        partition.error_code
        for topic in answer.topics
        for partition in topic.partitions
        if partition.error_code in _MOVED
    )
