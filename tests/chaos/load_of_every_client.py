"""The chaos load with clients of every kind: ours, kafka-python and aiokafka beside librdkafka.

Each kind has a group of its own, so that the ways in which one of them
rebalances do not stop the others; all must go on after every fault.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.structs import TopicPartition as AiokafkaPartition

from barnabas.client import ConsumerConfig, ProducerConfig, SyncConsumer, SyncProducer
from barnabas.client import KafkaError as OwnError
from barnabas.client import TopicPartition as OwnPartition
from tests.chaos.load import PARTITIONS, RECORDS, Load
from tests.chaos.offset_load import GroupReader
from tests.chaos.record_checks import RecordId
from tests.chaos.record_load import BATCH, PACE_S, GroupMember, Idempotent
from tests.harness.kafka_python_client import (
    KafkaConsumer,
    KafkaProducer,
    KafkaPythonError,
    OffsetAndMetadata,
    TopicPartition,
)
from tests.harness.raw_connection import Address

REQUEST_MS: Final = 10_000
"""How long a client waits for a node that is silent; others serve again long before."""
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 500
POLL_MS: Final = 100
MANY: Final = 200
RETRY_S: Final = 0.1


class OwnProducer(Idempotent):
    """Our own client, idempotent, through its facade without await."""

    def repeat(self) -> None:
        config = ProducerConfig(linger_ms=2, request_timeout_ms=REQUEST_MS)
        with SyncProducer(self._bootstrap, config) as producer:
            while not self.is_over.wait(PACE_S):
                for _ in range(BATCH):
                    value, partition = self.next_value()
                    sent = producer.send_soon(self._topic, value, partition=partition)
                    sent.add_done_callback(partial(self._ended, value))
            producer.flush()

    def _ended(self, value: bytes, done: Future[Any]) -> None:
        error = done.exception()
        if error is not None:
            self.refused.append(repr(error))
        else:
            record_id = done.result()
            self.sent.acknowledged[value] = (record_id.partition, record_id.offset)


class KafkaPythonProducer(Idempotent):
    """kafka-python, idempotent."""

    def repeat(self) -> None:
        producer: Any = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=2,
            request_timeout_ms=REQUEST_MS,
            metadata_max_age_ms=2_000,
            reconnect_backoff_max_ms=500,
        )
        try:
            while not self.is_over.wait(PACE_S):
                for _ in range(BATCH):
                    value, partition = self.next_value()
                    try:
                        sent = producer.send(self._topic, value, partition=partition)
                    except KafkaPythonError as error:  # no room, no metadata: it was not sent
                        self.refused.append(repr(error))
                        continue
                    sent.add_callback(self._acknowledged, value)
                    sent.add_errback(self._refused)
            producer.flush(timeout=100)
        finally:
            producer.close(timeout=5)

    def _acknowledged(self, value: bytes, record_id: Any) -> None:
        if record_id.offset < 0:
            self.sent.unplaced[value] = record_id.partition
        else:
            self.sent.acknowledged[value] = (record_id.partition, record_id.offset)

    def _refused(self, error: BaseException) -> None:
        self.refused.append(repr(error))


class OwnMember(GroupMember):
    """A member that our own client makes."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__()
        self._made = (bootstrap, topic, group)

    def repeat(self) -> None:
        bootstrap, topic, group = self._made
        config = ConsumerConfig(
            auto_offset_reset="earliest",
            auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            metadata_max_age_ms=2_000,
        )
        with SyncConsumer(bootstrap, topic, group=group, config=config) as consumer:
            while not self.is_over.is_set():
                try:
                    self._step(consumer, topic)
                except OwnError:
                    self.is_over.wait(RETRY_S)  # a node was not there; asked again

    def _step(self, consumer: SyncConsumer, topic: str) -> None:
        batch = consumer.next_batch(MANY, timeout_s=POLL_MS / 1_000)
        if batch is None:
            return
        rows = [((one.partition, one.offset), one.value or b"") for one in batch]
        self.received += rows
        ends = ends_of(record_id for record_id, _ in rows)
        offsets = {OwnPartition(topic, index): end for index, end in ends.items()}
        with self.storing(ends) as done:
            consumer.commit(offsets)
            done.update(ends)


class KafkaPythonMember(GroupMember):
    """A member that kafka-python makes."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__()
        self._made = (bootstrap, topic, group)

    def repeat(self) -> None:
        bootstrap, topic, group = self._made
        consumer: Any = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_MS,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=2_000,
            reconnect_backoff_max_ms=500,
        )
        try:
            while not self.is_over.is_set():
                try:
                    self._step(consumer, topic)
                except KafkaPythonError:
                    self.is_over.wait(RETRY_S)
        finally:
            consumer.close(timeout_ms=5_000)

    def _step(self, consumer: Any, topic: str) -> None:
        polled = consumer.poll(timeout_ms=POLL_MS, max_records=MANY)
        rows = [
            ((one.partition, one.offset), one.value) for many in polled.values() for one in many
        ]
        if not rows:
            return
        self.received += rows
        ends = ends_of(record_id for record_id, _ in rows)
        offsets = {
            TopicPartition(topic, index): OffsetAndMetadata(end, "", -1)
            for index, end in ends.items()
        }
        with self.storing(ends) as done:
            consumer.commit(offsets, timeout_ms=REQUEST_MS)
            done.update(ends)


class AiokafkaMember(GroupMember):
    """A member that aiokafka makes, on a loop of its own."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__()
        self._made = (bootstrap, topic, group)

    def repeat(self) -> None:
        asyncio.run(self._run_until_over())

    async def _run_until_over(self) -> None:
        bootstrap, topic, group = self._made
        consumer: Any = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            request_timeout_ms=REQUEST_MS,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=2_000,
        )
        await consumer.start()
        try:
            while not self.is_over.is_set():
                try:
                    await self._step(consumer, topic)
                except AiokafkaError:
                    await asyncio.sleep(RETRY_S)
        finally:
            await consumer.stop()

    async def _step(self, consumer: Any, topic: str) -> None:
        polled = await consumer.getmany(timeout_ms=POLL_MS, max_records=MANY)
        rows = [
            ((one.partition, one.offset), one.value) for many in polled.values() for one in many
        ]
        if not rows:
            return
        self.received += rows
        ends = ends_of(record_id for record_id, _ in rows)
        offsets = {AiokafkaPartition(topic, index): end for index, end in ends.items()}
        with self.storing(ends) as done:
            await consumer.commit(offsets)
            done.update(ends)


KINDS: Final[Mapping[str, type[OwnMember | KafkaPythonMember | AiokafkaMember]]] = {
    "members-of-ours": OwnMember,
    "members-kafka-python": KafkaPythonMember,
    "members-aiokafka": AiokafkaMember,
}
"""What a group of each kind is called."""


class EveryClient(Load):
    """The load of the chaos rounds, and two producers and three groups more."""

    def __init__(self, addresses: Sequence[Address], bootstrap: str, rng: random.Random) -> None:
        super().__init__(addresses, bootstrap, rng)
        for group, kind in KINDS.items():
            self.members[group] = [kind(bootstrap, RECORDS, group)]
            self._group_readers[group] = GroupReader(addresses, RECORDS, group, PARTITIONS)
        self._idempotent += [
            OwnProducer(bootstrap, RECORDS, PARTITIONS, "barnabas"),
            KafkaPythonProducer(bootstrap, RECORDS, PARTITIONS, "kafka-python"),
        ]


def ends_of(record_ids: Iterable[RecordId]) -> dict[int, int]:
    """Where to read on after records at these places, by partition."""
    ends: dict[int, int] = {}
    for partition, offset in record_ids:
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return ends
