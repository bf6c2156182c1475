"""A transactional copy job by one of three client libraries: ``python -m tests.chaos.copy_job``.

It is given its kind and a task as JSON, copies until SIGTERM, and ends with 3 where its client says
that it must: then another instance takes its place, as whoever runs such jobs does.
Source: docs/spec/transactions.md §7 and §9.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.structs import OffsetAndMetadata
from aiokafka.structs import TopicPartition as AiokafkaPartition
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaException
from confluent_kafka import Producer as LibrdkafkaProducer
from confluent_kafka import TopicPartition as LibrdkafkaPartition

from barnabas.client import Cluster, Consumer, GroupOffsets, KafkaError, Producer, TopicPartition
from barnabas.client.consumer.rebalance_listener import RebalanceListener
from barnabas.client.errors import AbortableTransactionError, RequestTimedOut
from tests.transactions.history import Outcome, Row

from .copy_journal import CopyTask, Journal, row_of, value_of

LOST: Final = 3
"""The exit code of a job that cannot go on."""
CALL_S: Final = 30.0
POLL_S: Final = 0.3
SESSION_MS: Final = 6_000


class Stopping:
    """SIGTERM was received: end after the transaction that is open."""

    def __init__(self) -> None:
        self.is_set = False
        signal.signal(signal.SIGTERM, self._set)

    def _set(self, *_: object) -> None:
        self.is_set = True


class LibrdkafkaJob:
    """A member of a group; librdkafka says of each error what is to be done."""

    def __init__(self, task: CopyTask) -> None:
        self._task = task
        self._told: dict[int, int] = {}
        """Where the group says to begin, of partitions that nothing was copied of since."""
        self._consumer: Any = LibrdkafkaConsumer(
            {
                "bootstrap.servers": task.bootstrap,
                "group.id": task.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "log_level": 2,
            }
        )
        self._producer: Any = LibrdkafkaProducer(
            {
                "bootstrap.servers": task.bootstrap,
                "transactional.id": task.producer,
                "transaction.timeout.ms": task.timeout_ms,
                "log_level": 2,
            }
        )

    def run(self, stopping: Stopping) -> None:
        """Copy until told to stop; raises KafkaException when the producer is of no more use."""
        asked = time.monotonic()
        retried(lambda: self._producer.init_transactions(CALL_S))
        self._journal = Journal(self._task, asked)
        self._consumer.subscribe([self._task.source], on_assign=self._assigned)
        while not stopping.is_set:
            messages = self._consumer.consume(self._task.batch, POLL_S)
            rows = [
                (one.partition(), row_of(one.offset(), one.value()))
                for one in messages
                if one.error() is None
            ]
            if rows:
                self._copy(rows)
        self._consumer.close()

    def _copy(self, rows: Sequence[tuple[int, Row]]) -> None:
        told = {key: self._told.pop(key) for key in {key for key, _ in rows} & self._told.keys()}
        name, copies, offsets = self._journal.begin(rows, told)
        try:
            self._producer.begin_transaction()
            for copy in copies:
                topic, partition = copy.target
                value = value_of(copy.row.origin, name)
                self._producer.produce(topic, value=value, partition=partition)
            sent = [LibrdkafkaPartition(self._task.source, *one) for one in offsets.items()]
            member = self._consumer.consumer_group_metadata()
            retried(lambda: self._producer.send_offsets_to_transaction(sent, member, CALL_S))
            self._journal.ending()
            if self._journal.is_to_abort:
                self._abort()
                return
            retried(lambda: self._producer.commit_transaction(CALL_S))
            self._journal.ended(Outcome.COMMITTED)
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self._abort()

    def _abort(self) -> None:
        retried(lambda: self._producer.abort_transaction(CALL_S))
        self._journal.ended(Outcome.ABORTED)
        self._assigned(self._consumer, self._consumer.assignment(), is_new=False)

    def _assigned(self, consumer: Any, partitions: Sequence[Any], *, is_new: bool = True) -> None:
        """Begin where the group says, once nobody is about to change it."""
        if not partitions:
            return
        bare = [LibrdkafkaPartition(one.topic, one.partition) for one in partitions]
        committed: list[Any] = retried(lambda: consumer.committed(bare, CALL_S))
        for one in committed:
            one.offset = max(one.offset, 0)  # a negative one stands for none
            self._told[one.partition] = one.offset
        if is_new:
            consumer.assign(committed)
            return
        for one in committed:
            consumer.seek(one)


def retried(ask: Callable[[], Any]) -> Any:
    """Ask until it is done or cannot be done; raises KafkaException."""
    while True:
        try:
            return ask()
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


class OwnJob(RebalanceListener):
    """A member of a group, by the client of this repository."""

    def __init__(self, task: CopyTask) -> None:
        self._task = task
        self._told: dict[int, int] = {}
        settings = {
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": str(SESSION_MS),
            "heartbeat.interval.ms": "500",
        }
        self._consumer = Consumer(
            task.bootstrap, task.source, group=task.group, config=settings, listener=self
        )
        self._producer = Producer(
            task.bootstrap,
            {"transaction.timeout.ms": str(task.timeout_ms)},
            transactional_id=task.producer,
        )

    async def run(self, stopping: Stopping) -> None:
        """Copy until told to stop; raises KafkaError when the producer is of no use any more."""
        asked = time.monotonic()
        async with self._producer, self._consumer:
            self._journal = Journal(self._task, asked)
            while not stopping.is_set:
                batch = await self._consumer.next_batch(self._task.batch, timeout_s=POLL_S)
                if batch is not None:
                    await self._copy(
                        [(one.partition, row_of(one.offset, one.value)) for one in batch]
                    )

    async def on_assigned(self, topic_partitions: Any) -> None:
        """Begin where the group says, once nobody is about to change it."""
        await self._begin_at(topic_partitions)

    async def _begin_at(self, topic_partitions: Any) -> None:
        committed = await self._consumer.committed(topic_partitions)
        for one in topic_partitions:
            found = committed.get(one)
            self._told[one.partition] = 0 if found is None else found.offset
            if one in self._consumer.assignment:
                self._consumer.seek(one, self._told[one.partition])

    async def _copy(self, rows: Sequence[tuple[int, Row]]) -> None:
        told = {key: self._told.pop(key) for key in {key for key, _ in rows} & self._told.keys()}
        name, copies, offsets = self._journal.begin(rows, told)
        try:
            self._producer.begin()
            for copy in copies:
                topic, partition = copy.target
                value = value_of(copy.row.origin, name)
                self._producer.send_soon(topic, value, partition=partition)
            sent = {TopicPartition(self._task.source, key): one for key, one in offsets.items()}
            await self._until_known(lambda: self._producer.send_offsets(self._consumer, sent))
            self._journal.ending()
            if self._journal.is_to_abort:
                await self._abort()
                return
            await self._until_known(self._producer.commit)
            self._journal.ended(Outcome.COMMITTED)
        except AbortableTransactionError:
            await self._abort()

    async def _abort(self) -> None:
        await self._until_known(self._producer.abort)
        self._journal.ended(Outcome.ABORTED)
        await self._begin_at(self._consumer.assignment)

    async def _until_known(self, ask: Callable[[], Any]) -> None:
        """Ask again after a time-out: the outcome is known when it returns, or raises another."""
        while True:
            try:
                await ask()
            except RequestTimedOut:
                continue
            return


class AiokafkaJob:
    """All partitions of a topic without a group's members: aiokafka sends no generation.

    What fences a former instance is the transactional id alone, so there is one job.
    """

    def __init__(self, task: CopyTask) -> None:
        self._task = task
        self._partitions = [
            AiokafkaPartition(task.source, number) for number in range(task.partitions)
        ]

    async def run(self, stopping: Stopping) -> None:
        """Copy until told to stop; raises AiokafkaError at the first trouble."""
        task = self._task
        asked = time.monotonic()
        async with (
            AIOKafkaProducer(
                bootstrap_servers=task.bootstrap,
                transactional_id=task.producer,
                transaction_timeout_ms=task.timeout_ms,
            ) as producer,
            AIOKafkaConsumer(
                bootstrap_servers=task.bootstrap,
                group_id=task.group,
                enable_auto_commit=False,
                isolation_level="read_committed",
            ) as consumer,
        ):
            journal = Journal(task, asked)
            consumer.assign(self._partitions)
            told = await self._begin(consumer)
            while not stopping.is_set:
                polled: Mapping[Any, Any] = await consumer.getmany(
                    timeout_ms=int(POLL_S * 1_000), max_records=task.batch
                )
                rows = [
                    (where.partition, row_of(one.offset, one.value))
                    for where, records in polled.items()
                    for one in records
                ]
                if rows and not await self._copy(producer, journal, rows, told):
                    told = await self._begin(consumer)

    async def _begin(self, consumer: Any) -> dict[int, int]:
        """Where the group's coordinator says.

        aiokafka 0.14 does not look at the error of an answer as a whole: while the coordinator
        moves it says that there is no offset. So it is not aiokafka that is asked.
        """
        async with Cluster(self._task.bootstrap) as cluster:
            places = [TopicPartition(*one) for one in self._partitions]
            offsets = GroupOffsets(cluster, self._task.group)
            found = await offsets.fetch(places, require_stable=True)
        told: dict[int, int] = {}
        for place, one in zip(places, self._partitions, strict=True):
            told[one.partition] = found[place].offset if place in found else 0
            consumer.seek(one, told[one.partition])
        return told

    async def _copy(
        self, producer: Any, journal: Journal, rows: Sequence[tuple[int, Row]], told: dict[int, int]
    ) -> bool:
        """Whether it was committed."""
        positions = {key: told.pop(key) for key in {key for key, _ in rows} & told.keys()}
        name, copies, offsets = journal.begin(rows, positions)
        await producer.begin_transaction()
        sent = [
            await producer.send(topic, value_of(copy.row.origin, name), partition=partition)
            for copy in copies
            for topic, partition in [copy.target]
        ]
        await asyncio.gather(*sent)
        ends = {
            AiokafkaPartition(self._task.source, key): OffsetAndMetadata(offset, "")
            for key, offset in offsets.items()
        }
        await producer.send_offsets_to_transaction(ends, self._task.group)
        journal.ending()
        if journal.is_to_abort:
            await producer.abort_transaction()
            journal.ended(Outcome.ABORTED)
            return False
        await producer.commit_transaction()
        journal.ended(Outcome.COMMITTED)
        return True


KINDS: Final[Mapping[str, Callable[[CopyTask, Stopping], Any]]] = {
    "librdkafka": lambda task, stopping: LibrdkafkaJob(task).run(stopping),
    "barnabas": lambda task, stopping: asyncio.run(_own(task, stopping)),
    "aiokafka": lambda task, stopping: asyncio.run(AiokafkaJob(task).run(stopping)),
}


async def _own(task: CopyTask, stopping: Stopping) -> None:
    await OwnJob(task).run(stopping)


def main(arguments: Sequence[str]) -> int:
    """Run a job: its kind, then its task."""
    kind, task = arguments
    faulthandler.register(signal.SIGUSR1)  # where it is, for whoever finds it stuck
    stopping = Stopping()
    try:
        KINDS[kind](CopyTask(**json.loads(task)), stopping)
    except (KafkaException, KafkaError, AiokafkaError) as failure:
        sys.stderr.write(f"{kind} ends: {failure!r}\n")
        return LOST
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
