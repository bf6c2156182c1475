"""The same three jobs done with each client library: produce, consume, commit again and again.

All with acks=all, idempotent, batches of 64 KiB, 5 ms of linger, no compression; one partition. The
asyncio clients run on the loop that asyncio gives. A job is timed from a connected client on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(open|read)_text is deprecated", DeprecationWarning)
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as AioPartition
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as KafkaPartition
    from kafka.structs import OffsetAndMetadata

from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.consumer_config import ConsumerConfig
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from barnabas.client.topology import TopicPartition

BATCH_BYTES: Final = 64 << 10
LINGER_MS: Final = 5
POLL_RECORDS: Final = 10_000
POLL_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ClientTask:
    """``count`` records of ``size`` bytes in partition 0 of ``topic``, or ``count`` commits."""

    bootstrap: str
    topic: str
    count: int
    size: int = 0

    @property
    def value(self) -> bytes:
        """What each record carries."""
        return bytes(i * 7 % 251 for i in range(self.size))


@dataclass(slots=True)
class Cost:
    """What a job cost this process; latencies are in seconds, one a commit."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """What runs inside is the job."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall_s = time.perf_counter() - wall
        self.cpu_s = time.process_time() - cpu


async def aiokafka_produce(job: ClientTask) -> Cost:
    """Send without waiting; then wait for all."""
    cost, value = Cost(), job.value
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks="all",
        enable_idempotence=True,
        max_batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
    )
    async with producer:
        await producer.send_and_wait(job.topic, value, partition=0)
        with cost.counted():
            sent = [await producer.send(job.topic, value, partition=0) for _ in range(job.count)]
            for future in sent:
                await future
    return cost


async def aiokafka_consume(job: ClientTask) -> Cost:
    """Many records at a time, their values counted."""
    cost, left = Cost(), job.count
    consumer = AIOKafkaConsumer(bootstrap_servers=job.bootstrap, enable_auto_commit=False)
    async with consumer:
        place = AioPartition(job.topic, 0)
        consumer.assign([place])
        with cost.counted():
            await consumer.seek_to_beginning(place)
            while left > 0:
                found = await consumer.getmany(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
                for records in found.values():
                    left -= sum(len(record.value) == job.size for record in records)
    return cost


async def aiokafka_commit(job: ClientTask) -> Cost:
    """A member of a group commits, one offset after the other."""
    cost = Cost()
    consumer = AIOKafkaConsumer(
        job.topic,
        bootstrap_servers=job.bootstrap,
        group_id=job.topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with consumer:
        await consumer.getone()
        place = AioPartition(job.topic, 0)
        with cost.counted():
            for offset in range(job.count):
                began = time.perf_counter()
                await consumer.commit({place: offset})
                cost.latencies.append(time.perf_counter() - began)
    return cost


async def barnabas_produce(job: ClientTask) -> Cost:
    """Send without waiting; then wait for all."""
    cost, value = Cost(), job.value
    config = ProducerConfig(batch_bytes=BATCH_BYTES, linger_ms=LINGER_MS)
    async with Producer(job.bootstrap, config) as producer:
        await producer.send(job.topic, value, partition=0)
        last = None
        with cost.counted():
            for _ in range(job.count):
                if not producer.has_room:
                    await producer.room()
                last = producer.send_soon(job.topic, value, partition=0)
            await producer.flush()
            assert last is not None
            await last
    return cost


async def barnabas_consume(job: ClientTask) -> Cost:
    """Many records at a time, their values counted."""
    cost, left = Cost(), job.count
    async with Consumer(job.bootstrap) as consumer:
        with cost.counted():
            await consumer.assign({TopicPartition(job.topic, 0): 0})
            while left > 0:
                batch = await consumer.next_batch(POLL_RECORDS, timeout_s=POLL_MS / 1000)
                if batch is not None:
                    left -= sum(len(record.value) == job.size for record in batch)
    return cost


async def barnabas_commit(job: ClientTask) -> Cost:
    """A member of a group commits, one offset after the other."""
    cost = Cost()
    config = ConsumerConfig(auto_offset_reset="earliest", auto_commit=False)
    async with Consumer(job.bootstrap, job.topic, group=job.topic, config=config) as consumer:
        await anext(aiter(consumer))
        place = TopicPartition(job.topic, 0)
        with cost.counted():
            for offset in range(job.count):
                began = time.perf_counter()
                await consumer.commit({place: offset})
                cost.latencies.append(time.perf_counter() - began)
    return cost


def kafka_python_produce(job: ClientTask) -> Cost:
    """Send without waiting; then wait for all."""
    cost, value = Cost(), job.value
    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks="all",
        enable_idempotence=True,
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
    )
    try:
        producer.send(job.topic, value, partition=0).get()
        last = None
        with cost.counted():
            for _ in range(job.count):
                last = producer.send(job.topic, value, partition=0)
            producer.flush()
            assert last is not None
            last.get()
    finally:
        producer.close()
    return cost


def kafka_python_consume(job: ClientTask) -> Cost:
    """Many records at a time, their values counted."""
    cost, left = Cost(), job.count
    consumer = KafkaConsumer(bootstrap_servers=job.bootstrap, enable_auto_commit=False)
    try:
        place = KafkaPartition(job.topic, 0)
        consumer.assign([place])
        with cost.counted():
            consumer.seek_to_beginning(place)
            while left > 0:
                found = consumer.poll(timeout_ms=POLL_MS, max_records=POLL_RECORDS)
                for records in found.values():
                    left -= sum(len(record.value) == job.size for record in records)
    finally:
        consumer.close()
    return cost


def kafka_python_commit(job: ClientTask) -> Cost:
    """A member of a group commits, one offset after the other."""
    cost = Cost()
    consumer = KafkaConsumer(
        job.topic,
        bootstrap_servers=job.bootstrap,
        group_id=job.topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    try:
        next(consumer)
        place = KafkaPartition(job.topic, 0)
        with cost.counted():
            for offset in range(job.count):
                began = time.perf_counter()
                consumer.commit({place: OffsetAndMetadata(offset, "", -1)})
                cost.latencies.append(time.perf_counter() - began)
    finally:
        consumer.close()
    return cost


Contestant = Mapping[str, Callable[[ClientTask], Cost | Coroutine[Any, Any, Cost]]]
"""What a client does for each job; a coroutine is run by who asks."""

CONTESTANTS: Final[Mapping[str, Contestant]] = {
    "barnabas": {
        "produce": barnabas_produce,
        "consume": barnabas_consume,
        "commit": barnabas_commit,
    },
    "aiokafka": {
        "produce": aiokafka_produce,
        "consume": aiokafka_consume,
        "commit": aiokafka_commit,
    },
    "kafka-python": {
        "produce": kafka_python_produce,
        "consume": kafka_python_consume,
        "commit": kafka_python_commit,
    },
}
