"""Client libraries that read one partition for committed records, or for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import kafka
from aiokafka import AIOKafkaConsumer
from aiokafka.structs import TopicPartition as AiokafkaTopicPartition
from confluent_kafka import Consumer, KafkaException, TopicPartition

from .waiting import eventually

POLL_MS: Final = 200

Row = tuple[int, bytes]
"""Offset and value of a record."""
Reader = Callable[[str, str, int, str, int], list[Row]]
"""Given bootstrap, topic, partition, isolation level, and the offset where it is to arrive."""


def confluent(bootstrap: str, topic: str, partition: int, isolation: str, end: int) -> list[Row]:
    """librdkafka says itself when it is at the end."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    rows: list[Row] = []

    def is_at_end() -> bool:
        message = consumer.poll(POLL_MS / 1000)
        if message is None:
            return False
        if message.error() is None:
            rows.append((message.offset(), message.value()))
            return False
        if message.error().name() != "_PARTITION_EOF":
            raise KafkaException(message.error())
        # The end of a transaction is answered before its markers are everywhere.
        assert message.offset() <= end
        return bool(message.offset() == end)

    try:
        eventually(is_at_end, what=f"the end at {end}")
    finally:
        consumer.close()
    return rows


def kafka_python(bootstrap: str, topic: str, partition: int, isolation: str, end: int) -> list[Row]:
    """Its end offset must be the one that was asked for."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, isolation_level=isolation
    )
    topic_partition = kafka.TopicPartition(topic, partition)
    rows: list[Row] = []

    def is_at_end() -> bool:
        for records in consumer.poll(timeout_ms=POLL_MS).values():
            rows.extend((record.offset, record.value) for record in records)
        return bool(consumer.position(topic_partition) >= end)

    try:
        consumer.assign([topic_partition])
        eventually(
            lambda: consumer.end_offsets([topic_partition]) == {topic_partition: end},
            what=f"the end at {end}",
        )
        consumer.seek(topic_partition, 0)
        eventually(is_at_end, what=f"the end at {end}")
    finally:
        consumer.close()
    return rows


def aiokafka(bootstrap: str, topic: str, partition: int, isolation: str, end: int) -> list[Row]:
    """As kafka-python."""
    topic_partition = AiokafkaTopicPartition(topic, partition)

    async def read() -> list[Row]:
        rows: list[Row] = []
        async with AIOKafkaConsumer(
            bootstrap_servers=bootstrap, isolation_level=isolation
        ) as consumer:
            consumer.assign([topic_partition])
            async with asyncio.timeout(90):
                ends = {topic_partition: end}
                while await consumer.end_offsets([topic_partition]) != ends:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_MS / 1000)
            consumer.seek(topic_partition, 0)
            async with asyncio.timeout(90):
                while await consumer.position(topic_partition) < end:
                    polled: Mapping[Any, Any] = await consumer.getmany(timeout_ms=POLL_MS)
                    for records in polled.values():
                        rows += [(record.offset, record.value) for record in records]
        return rows

    return asyncio.run(read())


READERS: Final[tuple[Reader, ...]] = (confluent, kafka_python, aiokafka)
