"""Copies exactly once on Apache Kafka: members that come, go, fail and are fenced, of two clients.

What is read of the copies as committed is each record of the source once, in the order of its
partition, and the committed offsets are the ends of the source. Check T7.4; the last sequences of
docs/spec/transactions.md §9.
"""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import confluent_kafka
import pytest

from barnabas.client import (
    AbortableTransactionError,
    Admin,
    CommitFailed,
    Consumer,
    ConsumerConfig,
    NewTopic,
    Producer,
    ProducerConfig,
    ProducerFenced,
    TopicPartition,
)
from tests.harness.deployments import Deployment
from tests.harness.transactional_clusters import transactional

__all__ = ["transactional"]


PARTITIONS: Final = 4
RECORDS: Final = 4_000
WAIT_S: Final = 240.0
CONFIG = ConsumerConfig(
    auto_offset_reset="earliest",
    heartbeat_interval_ms=200,
    session_timeout_ms=30_000,
    auto_commit=False,
)


class Copying:
    """One job: a source, a target, the group of its members, and what all of them have copied."""

    def __init__(self, bootstrap: str) -> None:
        name = uuid.uuid4().hex[:12]
        self.bootstrap = bootstrap
        self.source, self.target, self.group = f"in-{name}", f"out-{name}", f"copy-{name}"
        self.committed = 0
        """Records whose copies were committed, by members that lived to count them."""
        self.random = random.Random(name)

    async def begin(self) -> None:
        async with Admin.of(self.bootstrap) as admin:
            await admin.create_topics(
                [
                    NewTopic(name=topic, partitions=PARTITIONS)
                    for topic in (self.source, self.target)
                ]
            )

    async def fill(self, count: int, start: int = 0) -> None:
        async with Producer(self.bootstrap) as plain:
            for number in range(start, start + count):
                plain.send_soon(self.source, str(number), partition=number % PARTITIONS)
            await plain.flush()

    async def copy(self, member: str, *, failures: float = 0.0, most: int = 25) -> None:
        """Copy for ever; ``failures`` of the transactions are aborted by an exception."""
        async with (
            Consumer(self.bootstrap, self.source, group=self.group, config=CONFIG) as consumer,
            Producer(self.bootstrap, transactional_id=f"{self.group}-{member}") as producer,
        ):
            while True:
                batch = await consumer.next_batch(most, timeout_s=0.2)
                if batch is None:
                    continue
                try:
                    async with producer.transaction() as transaction:
                        for record in batch:
                            transaction.send_soon(
                                self.target, record.value, partition=record.partition
                            )
                        if self.random.random() < failures:
                            raise PlannedFailure
                        await transaction.send_offsets(consumer)
                        if self.random.random() < failures:
                            raise PlannedFailure
                except (PlannedFailure, AbortableTransactionError, CommitFailed):
                    await consumer.seek_to_committed()
                else:
                    self.committed += len(batch)

    @asynccontextmanager
    async def member(self, name: str, **how: Any) -> AsyncIterator[asyncio.Task[None]]:
        """A member that copies inside the block, and vanishes at its end."""
        copying = asyncio.ensure_future(self.copy(name, **how))
        try:
            yield copying
        finally:
            copying.cancel()
            await asyncio.gather(copying, return_exceptions=True)

    async def until(self, count: int, *members: asyncio.Task[None]) -> None:
        """Return when so many records of the source were copied."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for copying in members:
                    if copying.done() and not copying.cancelled():
                        copying.result()
                if sum((await self.stored()).values()) >= count:
                    return
                await asyncio.sleep(0.05)

    async def stored(self) -> dict[int, int]:
        places = [TopicPartition(self.source, number) for number in range(PARTITIONS)]
        async with Consumer(self.bootstrap, group=self.group, config=CONFIG) as reader:
            found = await reader.committed(places)
        return {place.partition: offset.offset for place, offset in found.items()}

    async def copies(self, expected: int) -> dict[int, list[int]]:
        """What a reader of committed records finds, by partition."""
        settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
        found: dict[int, list[int]] = defaultdict(list)
        async with Consumer(self.bootstrap, self.target, config=settings) as reader:
            while sum(map(len, found.values())) < expected:
                batch = await reader.next_batch(timeout_s=WAIT_S)
                assert batch is not None, f"{sum(map(len, found.values()))} of {expected}"
                for record in batch:
                    found[record.partition].append(int(record.value))
            assert not list(await reader.next_batch(timeout_s=1.0) or ())
        assert sum(map(len, found.values())) == expected
        return found

    async def verify(self, count: int) -> None:
        """Each record once, in the order of its partition; offsets at the ends of the source."""
        expected = {
            partition: list(range(partition, count, PARTITIONS)) for partition in range(PARTITIONS)
        }
        assert await self.copies(count) == expected
        assert await asyncio.to_thread(self._read_by_librdkafka, count) == expected
        assert await self.stored() == {
            partition: len(numbers) for partition, numbers in expected.items()
        }

    def _read_by_librdkafka(self, count: int) -> dict[int, list[int]]:
        reader: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.group}-reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        found: dict[int, list[int]] = defaultdict(list)
        reader.subscribe([self.target])
        try:
            for _ in range(count):
                message = reader.poll(WAIT_S)
                assert message is not None
                assert message.error() is None
                found[message.partition()].append(int(message.value()))
            assert reader.poll(1.0) is None
        finally:
            reader.close()
        return found


class PlannedFailure(Exception):  # noqa: N818 - reads as what happened
    """Raised inside a transaction."""


class LibrdkafkaMember(threading.Thread):
    """A member of the group that copies with librdkafka."""

    def __init__(self, job: Copying) -> None:
        super().__init__(name="copies with librdkafka", daemon=True)
        self._job = job
        self._ends = threading.Event()
        self._is_assigned = threading.Event()
        self._has_copied = threading.Event()
        self.copied = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._copy()
        except BaseException as error:  # noqa: BLE001 - told to the test
            self.failure = error

    def wait_assigned(self) -> None:
        """Return when it was given partitions."""
        assert self._is_assigned.wait(WAIT_S), self.failure

    def wait_copied(self) -> None:
        """Return when it has committed a copy."""
        assert self._has_copied.wait(WAIT_S), self.failure

    def end(self) -> None:
        self._ends.set()
        self.join(WAIT_S)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure

    def _copy(self) -> None:
        servers = {"bootstrap.servers": self._job.bootstrap}
        consumer: Any = confluent_kafka.Consumer(
            {
                **servers,
                "group.id": self._job.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": "range",
            }
        )
        producer: Any = confluent_kafka.Producer(
            {**servers, "transactional.id": f"{self._job.group}-theirs"}
        )
        producer.init_transactions(WAIT_S)
        consumer.subscribe([self._job.source], on_assign=self._assigned)
        try:
            while not self._ends.is_set():
                messages = consumer.consume(25, 0.2)
                if messages:
                    self._commit(consumer, producer, messages)
        finally:
            consumer.close()

    def _assigned(self, consumer: Any, places: list[Any]) -> None:
        if places:
            self._is_assigned.set()

    def _commit(self, consumer: Any, producer: Any, messages: list[Any]) -> None:
        producer.begin_transaction()
        try:
            for message in messages:
                assert message.error() is None
                producer.produce(self._job.target, message.value(), partition=message.partition())
            held = consumer.position(consumer.assignment())
            member = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(
                [place for place in held if place.offset >= 0], member, WAIT_S
            )
            producer.commit_transaction(WAIT_S)
            self.copied += len(messages)
            self._has_copied.set()
        except confluent_kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(WAIT_S)
            committed = consumer.committed(consumer.assignment(), WAIT_S)
            for place in committed:
                place.offset = max(place.offset, confluent_kafka.OFFSET_BEGINNING)
                consumer.seek(place)


@pytest.fixture
async def job(transactional: Deployment) -> Copying:
    job = Copying(transactional.bootstrap)
    await job.begin()
    return job


async def test_members_that_come_go_and_fail_copy_each_record_once(job: Copying) -> None:
    """Many producers, rebalancing consumers: order by partition, nothing lost or doubled."""
    await job.fill(RECORDS)
    async with job.member("a", failures=0.1) as first:
        await job.until(RECORDS // 8, first)
        async with job.member("b", failures=0.1) as second:
            await job.until(RECORDS // 3, first, second)
        # Its transaction may be open still: whoever has its partitions now waits for that.
        async with job.member("b", failures=0.1) as again, job.member("c") as third:
            await job.until(RECORDS, first, again, third)
    await job.verify(RECORDS)


async def test_our_members_and_librdkafkas_copy_together(job: Copying) -> None:
    await job.fill(RECORDS // 2)
    theirs = LibrdkafkaMember(job)
    async with job.member("ours", failures=0.1) as ours:
        await job.until(RECORDS // 8, ours)
        theirs.start()
        await asyncio.to_thread(theirs.wait_assigned)
        await job.fill(RECORDS // 2, RECORDS // 2)
        await asyncio.to_thread(theirs.wait_copied)
        await asyncio.to_thread(theirs.end)
        await job.until(RECORDS, ours)
    assert 0 < job.committed < RECORDS + theirs.copied
    await job.verify(RECORDS)


async def test_a_member_that_is_started_twice_fences_itself(job: Copying) -> None:
    """The same transactional id in two programs: the younger goes on, the older fails."""
    await job.fill(RECORDS)
    async with job.member("a", most=5) as older:
        await job.until(100, older)
        async with job.member("a") as younger:
            with pytest.raises(ProducerFenced):
                await asyncio.wait_for(asyncio.shield(older), WAIT_S)
            await job.until(RECORDS, younger)
    await job.verify(RECORDS)


async def test_a_member_that_is_silent_for_too_long_copies_nothing_twice(job: Copying) -> None:
    """Others have its partitions when it goes on: its transaction cannot be committed."""
    await job.fill(RECORDS)
    quick = ConsumerConfig(
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        session_timeout_ms=30_000,
        max_poll_interval_ms=500,
        auto_commit=False,
    )
    lasting = ProducerConfig(  # or its coordinator would end it, and fence it, before it goes on
        transactional_id=f"{job.group}-silent", transaction_timeout_ms=600_000
    )
    async with (
        Consumer(job.bootstrap, job.source, group=job.group, config=quick) as consumer,
        Producer(job.bootstrap, lasting) as producer,
    ):
        batch = await consumer.next_batch(25, timeout_s=WAIT_S)
        assert batch is not None
        producer.begin()
        for record in batch:
            producer.send_soon(job.target, record.value, partition=record.partition)
        await producer.flush()
        async with job.member("other") as other:
            await job.until(RECORDS, other)
            with pytest.raises((CommitFailed, AbortableTransactionError)):
                await producer.send_offsets(consumer)
            await producer.abort()
    await job.verify(RECORDS)
