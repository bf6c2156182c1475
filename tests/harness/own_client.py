"""Our own client as one more of those that tests compare, through its facade without await."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from barnabas.client import (
    Admin,
    ConsumedRecord,
    ConsumerConfig,
    NewTopic,
    ProducerConfig,
    SyncConsumer,
    SyncProducer,
    TopicPartition,
)
from barnabas.client.consumer.list_offsets import offsets_for

from .records import GroupDescription, Received, Sent

T = TypeVar("T")

POLL_S = 0.1
WAIT_S = 120.0


class Own:
    """Implements ClientLibrary."""

    name = "barnabas"
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def __init__(self, assignors: tuple[str, ...] = ConsumerConfig().assignors) -> None:
        self._assignors = assignors

    def create_topic(self, bootstrap: str, topic: str, partitions: int, factor: int = 1) -> None:
        wanted = NewTopic(name=topic, partitions=partitions, replication_factor=factor)
        _administrate(bootstrap, lambda admin: admin.create_topics([wanted]))

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str = "none"
    ) -> None:
        config = ProducerConfig(compression=codec, linger_ms=5, request_bytes_max=8 << 20)
        with SyncProducer(bootstrap, config) as producer:
            sent = [
                producer.send_soon(
                    topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            for future in sent:
                future.result(WAIT_S)

    def join(self, bootstrap: str, group: str, topic: str) -> OwnMember:
        config = ConsumerConfig(
            auto_offset_reset="earliest",
            auto_commit=False,
            heartbeat_interval_ms=500,
            session_timeout_ms=60_000,
            assignors=self._assignors,
        )
        return OwnMember(SyncConsumer(bootstrap, topic, group=group, config=config))

    def groups(self, bootstrap: str) -> set[str]:
        listed = _administrate(bootstrap, Admin.list_groups)
        return {group.group for group in listed}

    def describe_group(self, bootstrap: str, group: str) -> GroupDescription:
        found = _administrate(bootstrap, lambda admin: admin.describe_group(group))
        return GroupDescription(found.state, found.assignor, len(found.members))

    def committed(self, bootstrap: str, group: str) -> dict[int, int]:
        found = _administrate(bootstrap, lambda admin: admin.committed_offsets(group))
        return {
            topic_partition.partition: committed.offset
            for topic_partition, committed in found.items()
        }

    def offsets_at(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int, int | None]:
        topic_partition = TopicPartition(topic, partition)

        async def ask(admin: Admin) -> tuple[int, int, int | None]:
            first, end, at = [
                (await offsets_for(admin.cluster, {topic_partition: time}))[topic_partition]
                for time in (-2, -1, timestamp_ms)
            ]
            return first, end, at if at >= 0 else None

        return _administrate(bootstrap, ask)

    def read(self, bootstrap: str, topic: str, starts: Mapping[int, int | str]) -> list[Received]:
        topic_partitions = {
            TopicPartition(topic, partition): start if isinstance(start, int) else None
            for partition, start in starts.items()
        }
        ends = _administrate(
            bootstrap, lambda admin: offsets_for(admin.cluster, dict.fromkeys(topic_partitions, -1))
        )
        found: list[Received] = []
        config = ConsumerConfig(auto_offset_reset="earliest")
        with SyncConsumer(bootstrap, config=config) as consumer:
            consumer.assign(topic_partitions)
            while any(
                (consumer.position(topic_partition) or 0) < end
                for topic_partition, end in ends.items()
            ):
                batch = consumer.next_batch(timeout_s=POLL_S)
                found += [] if batch is None else map(_received, batch)
        return found


class OwnMember:
    """Implements GroupMember."""

    def __init__(self, consumer: SyncConsumer) -> None:
        self._consumer = consumer

    def poll(self) -> list[Received]:
        batch = self._consumer.next_batch(500, timeout_s=POLL_S)
        return [] if batch is None else [_received(record) for record in batch]

    def assigned(self) -> set[int]:
        return {topic_partition.partition for topic_partition in self._consumer.assignment}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


def _administrate(bootstrap: str, work: Callable[[Admin], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Admin.of(bootstrap) as admin:
            return await work(admin)

    return asyncio.run(run())


def _received(record: ConsumedRecord) -> Received:
    return Received(
        record.partition,
        record.offset,
        record.value,
        record.key,
        record.headers,
        record.timestamp,
    )
