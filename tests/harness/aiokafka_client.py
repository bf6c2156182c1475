"""aiokafka as one of the clients that others wrote; a member brings its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from .records import GroupDescription, Received, Sent

POLL_MS = 100


class Aiokafka:
    """Implements ClientLibrary."""

    name = "aiokafka"
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def create_topic(self, bootstrap: str, topic: str, partitions: int, factor: int = 1) -> None:
        async def create() -> None:
            async with _admin(bootstrap) as admin:
                await admin.create_topics([NewTopic(topic, partitions, replication_factor=factor)])

        asyncio.run(create())

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str = "none"
    ) -> None:
        async def produce() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                acks="all",
                compression_type=None if codec == "none" else codec,
                linger_ms=5,
                max_request_size=8 << 20,
            )
            async with producer:
                sent = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                for acknowledged in sent:
                    await acknowledged

        asyncio.run(produce())

    def join(self, bootstrap: str, group: str, topic: str) -> AiokafkaMember:
        return AiokafkaMember(bootstrap, group, topic)

    def groups(self, bootstrap: str) -> set[str]:
        async def ask() -> set[str]:
            async with _admin(bootstrap) as admin:
                return {group for group, _ in await admin.list_consumer_groups()}

        return asyncio.run(ask())

    def describe_group(self, bootstrap: str, group: str) -> GroupDescription:
        async def ask() -> GroupDescription:
            async with _admin(bootstrap) as admin:
                (response,) = await admin.describe_consumer_groups([group])
                error, _, state, _, protocol, members = response.groups[0][:6]
                assert error == 0
                return GroupDescription(state, protocol, len(members))

        return asyncio.run(ask())

    def committed(self, bootstrap: str, group: str) -> dict[int, int]:
        async def ask() -> dict[int, int]:
            async with _admin(bootstrap) as admin:
                found = await admin.list_consumer_group_offsets(group)
                return {
                    topic_partition.partition: committed.offset
                    for topic_partition, committed in found.items()
                }

        return asyncio.run(ask())

    def offsets_at(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int, int | None]:
        topic_partition = TopicPartition(topic, partition)

        async def ask() -> tuple[int, int, int | None]:
            async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
                first = (await consumer.beginning_offsets([topic_partition]))[topic_partition]
                end = (await consumer.end_offsets([topic_partition]))[topic_partition]
                found = (await consumer.offsets_for_times({topic_partition: timestamp_ms}))[
                    topic_partition
                ]
                return first, end, None if found is None else found.offset

        return asyncio.run(ask())

    def read(self, bootstrap: str, topic: str, starts: Mapping[int, int | str]) -> list[Received]:
        topic_partitions = {partition: TopicPartition(topic, partition) for partition in starts}

        async def read() -> list[Received]:
            received: list[Received] = []
            async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
                consumer.assign(list(topic_partitions.values()))
                ends = await consumer.end_offsets(list(topic_partitions.values()))
                firsts = await consumer.beginning_offsets(list(topic_partitions.values()))
                for partition, start in starts.items():
                    topic_partition = topic_partitions[partition]
                    consumer.seek(
                        topic_partition,
                        start if isinstance(start, int) else firsts[topic_partition],
                    )
                for topic_partition in topic_partitions.values():
                    while await consumer.position(topic_partition) < ends[topic_partition]:
                        received += _received(await consumer.getmany(timeout_ms=POLL_MS))
            return received

        return asyncio.run(read())


class AiokafkaMember:
    """Implements GroupMember."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._runner = asyncio.Runner()
        self._consumer: Any = self._runner.run(_joined(bootstrap, group, topic))

    def poll(self) -> list[Received]:
        return _received(self._runner.run(self._consumer.getmany(timeout_ms=POLL_MS)))

    def assigned(self) -> set[int]:
        return {topic_partition.partition for topic_partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._runner.run(self._consumer.commit())

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def _joined(bootstrap: str, group: str, topic: str) -> Any:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=30_000,  # a join that waits longer is given up by the client
    )
    await consumer.start()
    return consumer


def _received(polled: Mapping[Any, Sequence[Any]]) -> list[Received]:
    return [
        Received(
            record.partition,
            record.offset,
            record.value,
            record.key,
            tuple((name, value) for name, value in record.headers),
            record.timestamp,
        )
        for records in polled.values()
        for record in records
    ]
