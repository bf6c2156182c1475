"""confluent-kafka, that is librdkafka, as one of the clients that others wrote."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.harness.raw_connection import addresses_of

from .coordinators import coordinator
from .records import GroupDescription, Received, Sent
from .waiting import eventually

POLL_S = 0.1
WAIT_S = 120.0


class Confluent:
    """Implements ClientLibrary."""

    name = "confluent-kafka"
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def create_topic(self, bootstrap: str, topic: str, partitions: int, factor: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wanted = NewTopic(topic, partitions, replication_factor=factor)
        eventually(_Creation(admin, wanted).is_done, within_s=WAIT_S, what=f"topic {topic}")

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str = "none"
    ) -> None:
        self.produce_with(bootstrap, topic, records, {"compression.type": codec})

    def produce_with(
        self, bootstrap: str, topic: str, records: Sequence[Sent], settings: Mapping[str, Any]
    ) -> None:
        """Write records with more settings of librdkafka's."""
        failures: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "message.max.bytes": 8 << 20,
                **settings,
            }
        )

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                failures.append(str(error))

        for record in records:
            producer.produce(topic, on_delivery=delivered, **_arguments(record))
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        if failures:
            raise KafkaException(failures[0])

    def join(self, bootstrap: str, group: str, topic: str) -> ConfluentMember:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        return ConfluentMember(consumer)

    def groups(self, bootstrap: str) -> set[str]:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        listed = admin.list_consumer_groups().result(WAIT_S)
        assert not listed.errors
        return {group.group_id for group in listed.valid}

    def describe_group(self, bootstrap: str, group: str) -> GroupDescription:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        found = admin.describe_consumer_groups([group])[group].result(WAIT_S)
        state = "".join(part.capitalize() for part in found.state.name.split("_"))
        return GroupDescription(state, found.partition_assignor, len(found.members))

    def committed(self, bootstrap: str, group: str) -> dict[int, int]:
        """Asked of a consumer: an AdminClient that is answered 16 ends its process with SIGSEGV
        (2.16), and groups move while tests of lost nodes ask.
        """
        coordinator(addresses_of(bootstrap), group)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        try:
            topics = consumer.list_topics(timeout=WAIT_S).topics
            topic_partitions = [
                TopicPartition(name, index)
                for name, topic in topics.items()
                for index in topic.partitions
            ]
            found = consumer.committed(topic_partitions, WAIT_S)
        finally:
            consumer.close()
        return {
            topic_partition.partition: topic_partition.offset
            for topic_partition in found
            if topic_partition.offset >= 0
        }

    def offsets_at(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int, int | None]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        try:
            first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_S)
            asked = [TopicPartition(topic, partition, timestamp_ms)]
            (found,) = consumer.offsets_for_times(asked, WAIT_S)
        finally:
            consumer.close()
        return first, end, found.offset if found.offset >= 0 else None

    def read(self, bootstrap: str, topic: str, starts: Mapping[int, int | str]) -> list[Received]:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign(
                [
                    TopicPartition(topic, partition, start if isinstance(start, int) else -2)
                    for partition, start in starts.items()
                ]
            )
            return _read_to_the_end(consumer, len(starts))
        finally:
            consumer.close()


class ConfluentMember:
    """Implements GroupMember."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[Received]:
        messages = self._consumer.consume(500, POLL_S)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        return [_received(message) for message in messages]

    def assigned(self) -> set[int]:
        return {topic_partition.partition for topic_partition in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            committed = self._consumer.commit(asynchronous=False)
        except KafkaException as refused:
            if refused.args[0].code() == KafkaError._NO_OFFSET:
                return  # a rebalance took what it had read, and it has read nothing since
            raise
        for topic_partition in committed:
            assert topic_partition.error is None, topic_partition.error

    def close(self) -> None:
        self._consumer.close()


_PASSING = (
    KafkaError.NOT_CONTROLLER,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError._DESTROY_BROKER,
)
"""What a creation is answered while nodes come and go."""


class _Creation:
    """A topic that is asked for until it is there."""

    def __init__(self, admin: AdminClient, wanted: NewTopic) -> None:
        self._admin = admin
        self._wanted = wanted
        self._was_asked = False

    def is_done(self) -> bool:
        """False while nodes come and go: librdkafka hands that on, as it does with Kafka.

        It ends its handle of a node that metadata lacks for a moment, with what was asked there,
        which may have been done all the same. And where a busy node's session was over, there are
        too few nodes for the replicas until it is back.
        """
        asked_before, self._was_asked = self._was_asked, True
        try:
            self._admin.create_topics([self._wanted])[self._wanted.topic].result(WAIT_S)
        except KafkaException as refused:
            code = refused.args[0].code()
            if asked_before and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return True
            if code not in _PASSING:
                raise
            return False
        return True


def _arguments(record: Sent) -> dict[str, Any]:
    arguments: dict[str, Any] = {"value": record.value, "key": record.key}
    if record.headers:
        arguments["headers"] = list(record.headers)
    if record.partition is not None:
        arguments["partition"] = record.partition
    if record.timestamp_ms is not None:
        arguments["timestamp"] = record.timestamp_ms
    return arguments


def _read_to_the_end(consumer: Any, partitions: int) -> list[Received]:
    received: list[Received] = []
    ended: set[int] = set()
    deadline = time.monotonic() + WAIT_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "the end of the partitions does not come"
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        if message.error() is None:
            received.append(_received(message))
            deadline = time.monotonic() + WAIT_S  # however many there are, and however slowly
        elif message.error().name() == "_PARTITION_EOF":
            ended.add(message.partition())
        else:
            raise KafkaException(message.error())
    return received


def _received(message: Any) -> Received:
    return Received(
        message.partition(),
        message.offset(),
        message.value(),
        message.key(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )
