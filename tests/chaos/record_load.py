"""Producers and group members that go on through every fault and remember all they saw.

Source: docs/spec/reliability.md §3.2 (queue, pipeline). Values are ``name-number``.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, TopicPartition

from barnabas.client import KafkaError as OwnError
from tests.chaos.offset_history_checks import Write
from tests.harness.kafka_python_client import KafkaPythonError
from tests.harness.raw_batches import sequenced_batch
from tests.harness.raw_calls import NO_ERROR, leaders, produce
from tests.harness.raw_connection import Address, Closed, RawConnection
from tests.harness.traffic import Activity, persistent_producer

from .record_checks import RecordId, Sent

PACE_S: Final = 0.02
BATCH: Final = 4
FLUSH_S: Final = 100.0


class Idempotent(Activity):
    """A producer that sends every value until it is acknowledged, and never under two offsets."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__()
        self.name = name
        self.sent = Sent()
        self.refused: list[str] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions

    def next_value(self) -> tuple[bytes, int]:
        """What is sent next, and to which partition."""
        number = len(self.sent.values)
        value = f"{self.name}-{number}".encode()
        self.sent.values[value] = number
        return value, number % self._partitions


class Librdkafka(Idempotent):
    """Many in flight; librdkafka itself tries again."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__(bootstrap, topic, partitions, name)
        self._producer = persistent_producer(bootstrap, linger_ms=2)

    def repeat(self) -> None:
        while not self.is_over.is_set():
            for _ in range(BATCH):
                value, partition = self.next_value()
                self._producer.produce(
                    self._topic, value=value, partition=partition, on_delivery=self._delivered
                )
            self._producer.poll(PACE_S)
        assert self._producer.flush(FLUSH_S) == 0, "records stay undelivered"

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.refused.append(str(error))
        elif message.offset() is None:
            self.sent.unplaced[message.value()] = message.partition()
        else:
            self.sent.acknowledged[message.value()] = (message.partition(), message.offset())


class Aiokafka(Idempotent):
    """One batch in flight for each partition; aiokafka itself tries again."""

    def repeat(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            acks="all",
            request_timeout_ms=60_000,
            metadata_max_age_ms=2_000,
        )
        await producer.start()
        waiting: set[asyncio.Task[None]] = set()
        try:
            while not self.is_over.is_set():
                for _ in range(BATCH):
                    task = asyncio.create_task(self._await_outcome(*await self._send(producer)))
                    waiting.add(task)
                    task.add_done_callback(waiting.discard)
                await asyncio.sleep(PACE_S * 2)
            await asyncio.gather(*waiting)
        finally:
            await producer.stop()

    async def _send(self, producer: AIOKafkaProducer) -> tuple[bytes, asyncio.Future[Any]]:
        value, partition = self.next_value()
        return value, await producer.send(self._topic, value, partition=partition)

    async def _await_outcome(self, value: bytes, outcome: asyncio.Future[Any]) -> None:
        try:
            done = await outcome
        except AiokafkaError as error:
            self.refused.append(repr(error))
        else:
            self.sent.acknowledged[value] = (done.partition, done.offset)


class OneTry(Activity):
    """No idempotence, acks=all, every record sent once: what is not answered may be there."""

    def __init__(
        self, addresses: Sequence[Address], topic: str, partitions: int, name: str
    ) -> None:
        super().__init__()
        self.name = name
        self.sent = Sent()
        self._addresses = list(addresses)
        self._topic = topic
        self._partitions = partitions
        self._asked = 0
        self._links: dict[Address, RawConnection] = {}
        self._leaders: dict[int, Address] = {}

    def repeat(self) -> None:
        try:
            while not self.is_over.wait(PACE_S):
                try:
                    self._send()
                except (Closed, OSError):
                    self._forget()
        finally:
            self._forget()

    def _send(self) -> None:
        number = len(self.sent.values)
        partition = number % self._partitions
        address = self._leader(partition)
        if address is None:
            return
        if address not in self._links:
            self._links[address] = RawConnection(address, 3.0)
        value = f"{self.name}-{number}".encode()
        self.sent.values[value] = number
        done = produce(
            self._links[address], self._topic, partition, sequenced_batch([value], -1, -1)
        )
        if done.error == NO_ERROR:
            self.sent.acknowledged[value] = (partition, done.base_offset)
        else:
            self._leaders.clear()

    def _leader(self, partition: int) -> Address | None:
        if partition not in self._leaders:
            self._asked += 1
            with RawConnection(self._addresses[self._asked % len(self._addresses)], 1.0) as link:
                self._leaders = leaders(link, self._topic)
        return self._leaders.get(partition)

    def _forget(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._leaders.clear()


class GroupMember(Activity):
    """A member of a group that reads, and commits what it read before it reads on."""

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[RecordId, bytes]] = []
        self.commits: dict[int, list[Write]] = {}
        """By partition."""

    @contextlib.contextmanager
    def storing(self, ends: Mapping[int, int]) -> Iterator[set[int]]:
        """Commit ``ends`` in the ``with``, and add the partitions where it succeeded to the set.

        A commit that raises leaves open what became of it.
        """
        began, ended = time.monotonic(), math.inf
        done: set[int] = set()
        with contextlib.suppress(*UNKNOWN_OUTCOME):
            yield done
            ended = time.monotonic()
        for index, end in ends.items():
            write = Write(end, began, ended if index in done else math.inf)
            self.commits.setdefault(index, []).append(write)


UNKNOWN_OUTCOME: Final = (KafkaException, AiokafkaError, KafkaPythonError, OwnError, TimeoutError)
"""What a commit may raise."""


class Member(GroupMember):
    """A member that librdkafka makes."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__()
        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "topic.metadata.refresh.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        self._consumer.subscribe([topic])

    def repeat(self) -> None:
        try:
            while not self.is_over.is_set():
                messages = self._consumer.consume(200, timeout=0.1)
                good = [message for message in messages if message.error() is None]
                self.received += [((m.partition(), m.offset()), m.value()) for m in good]
                if good:
                    self._commit(good)
        finally:
            self._consumer.close()

    def _commit(self, messages: Sequence[Any]) -> None:
        ends = {message.partition(): message.offset() + 1 for message in messages}
        topic = messages[0].topic()
        wanted = [TopicPartition(topic, index, end) for index, end in ends.items()]
        with self.storing(ends) as stored:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
            stored.update(one.partition for one in done if one.error is None)
