"""Producers and group members that go on through every fault and remember all they saw.

Source: reliability.md section 3.2 (queue, pipeline). Values are ``name-number``.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.harness.raw import Address, Closed, RawConnection
from tests.harness.raw_batches import sequenced_batch
from tests.harness.raw_calls import NO_ERROR, leaders, produce
from tests.harness.traffic import Activity

from .record_checks import Place, Sent
from .registers import Write

PACE_S: Final = 0.02
BATCH: Final = 4
FLUSH_S: Final = 100.0


class Librdkafka(Activity):
    """Idempotent, many in flight; librdkafka itself tries again."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__()
        self.sent = Sent()
        self.refused: list[str] = []
        self._topic = topic
        self._partitions = partitions
        self._name = name
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 2,
            }
        )

    def repeat(self) -> None:
        while not self.is_over.is_set():
            for _ in range(BATCH):
                number = len(self.sent.values)
                value = f"{self._name}-{number}".encode()
                self.sent.values[value] = number
                self._producer.produce(
                    self._topic,
                    value=value,
                    partition=number % self._partitions,
                    on_delivery=self._delivered,
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


class Aiokafka(Activity):
    """Idempotent, one batch in flight for each partition; aiokafka itself tries again."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str) -> None:
        super().__init__()
        self.sent = Sent()
        self.refused: list[str] = []
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._name = name

    def repeat(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            enable_idempotence=True,
            acks="all",
            request_timeout_ms=15_000,
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
        number = len(self.sent.values)
        value = f"{self._name}-{number}".encode()
        self.sent.values[value] = number
        return value, await producer.send(self._topic, value, partition=number % self._partitions)

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
        self.sent = Sent()
        self._addresses = list(addresses)
        self._topic = topic
        self._partitions = partitions
        self._name = name
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
        value = f"{self._name}-{number}".encode()
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


class Member(Activity):
    """A member of a group that reads, and commits what it read before it reads on."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__()
        self.received: list[tuple[Place, bytes]] = []
        self.commits: dict[int, list[Write]] = {}
        """By partition."""
        self.problems: list[str] = []
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
        began, ended = time.monotonic(), math.inf
        codes: dict[int, Any] = {}
        with contextlib.suppress(KafkaException):  # then nobody knows
            codes = {one.partition: one.error for one in self._commit_now(wanted)}
            ended = time.monotonic()
        for index, end in ends.items():
            is_done = index in codes and codes[index] is None
            many = self.commits.setdefault(index, [])
            many.append(Write(end, began, ended if is_done else math.inf))

    def _commit_now(self, wanted: Sequence[TopicPartition]) -> Sequence[Any]:
        done: Sequence[Any] = self._consumer.commit(offsets=list(wanted), asynchronous=False)
        return done
