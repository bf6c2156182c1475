"""confluent-kafka, hence librdkafka, in any release from 2.3 on; see steps.py."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Producer,
    TopicPartition,
)

from tests.interop.matrix.steps import (
    FIRST,
    MORE,
    PARTITIONS,
    RETENTION,
    T0,
    Steps,
    by_partition,
    sent,
    until,
)

admin: Any = import_module("confluent_kafka.admin")
"""Which says nowhere what it exports."""
WAIT_S = 120


class Program(Steps):
    def __init__(self) -> None:
        super().__init__()
        self.admin: Any = admin.AdminClient({"bootstrap.servers": self.bootstrap})
        self.places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]

    def create(self) -> int:
        (made,) = self.admin.create_topics([admin.NewTopic(self.topic, PARTITIONS, 1)]).values()
        made.result(WAIT_S)
        return until(self.partitions, "the new topic")

    def partitions(self) -> int:
        return len(self.admin.list_topics(self.topic, WAIT_S).topics[self.topic].partitions)

    def produce(self, first: int, count: int, codec: str | None) -> Any:
        settings = {"bootstrap.servers": self.bootstrap, "enable.idempotence": True}
        producer = Producer({**settings, "compression.type": codec})
        failures: list[Any] = []
        records = sent(first, count)
        for where, stamp, key, value in records:
            producer.produce(
                self.topic,
                value,
                key,
                where,
                timestamp=stamp,
                headers=[("h", b"1")],
                on_delivery=lambda error, _: failures.append(error) if error else None,
            )
        left = producer.flush(WAIT_S)
        return f"{left} left, {failures}" if left or failures else len(records)

    def member(self) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )

    def read(self, count: int) -> int:
        consumer = self.member()
        consumer.subscribe([self.topic])
        values: set[bytes] = set()

        def has_all() -> bool:
            for message in consumer.consume(100, 0.2):
                if message.error():
                    if message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        continue  # the node that was asked hears of the topic in a moment
                    raise RuntimeError(message.error().str())
                values.add(message.value())
            return len(values) >= count

        try:
            until(has_all, f"{count} records")
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
        return len(values)

    def committed(self) -> Any:
        consumer = self.member()
        try:
            found = consumer.committed(self.places, WAIT_S)
        finally:
            consumer.close()
        return by_partition((at.partition, at.offset) for at in found)

    def offsets(self) -> Any:
        found = {
            name: self.admin.list_offsets({at: kind() for at in self.places})
            for name, kind in (
                ("first", admin.OffsetSpec.earliest),
                ("end", admin.OffsetSpec.latest),
            )
        }
        ends = {
            (name, at.partition): future.result(WAIT_S).offset
            for name, futures in found.items()
            for at, future in futures.items()
        }
        return by_partition(
            (number, [ends["first", number], ends["end", number]]) for number in range(PARTITIONS)
        )

    def by_time(self) -> Any:
        consumer = self.member()
        try:
            (found,) = consumer.offsets_for_times(
                [TopicPartition(self.topic, 0, T0 + FIRST * 1000)], WAIT_S
            )
        finally:
            consumer.close()
        return found.offset

    def groups(self) -> bool:
        found = self.admin.list_consumer_groups().result(WAIT_S)
        if found.errors:
            raise RuntimeError(str(found.errors))
        return self.group in [listing.group_id for listing in found.valid]

    def offsets_of_group(self) -> Any:
        asked = ConsumerGroupTopicPartitions(self.group, self.places)
        (found,) = self.admin.list_consumer_group_offsets([asked]).values()
        rows = found.result(WAIT_S).topic_partitions
        return by_partition((at.partition, at.offset) for at in rows)

    def alter(self) -> Any:
        kind = admin.ConfigResource.Type.TOPIC
        resource = admin.ConfigResource(kind, self.topic, {"retention.ms": RETENTION})
        (altered,) = self.admin.alter_configs([resource]).values()
        altered.result(WAIT_S)
        (found,) = self.admin.describe_configs([admin.ConfigResource(kind, self.topic)]).values()
        return found.result(WAIT_S)["retention.ms"].value

    def delete_group(self) -> bool:
        (gone,) = self.admin.delete_consumer_groups([self.group]).values()
        gone.result(WAIT_S)
        return until(lambda: not self.groups(), "the group is gone")

    def delete(self) -> bool:
        (gone,) = self.admin.delete_topics([self.topic]).values()
        gone.result(WAIT_S)
        return until(lambda: self.topic not in self.topics(), "the topic is gone")

    def topics(self) -> Any:
        return self.admin.list_topics(timeout=WAIT_S).topics


program = Program()
program.run("create", program.create)
program.run("groups before any", program.groups)
program.run("produce", program.produce, 0, FIRST, "none")
program.run("read", program.read, FIRST * PARTITIONS)
program.run("committed", program.committed)
program.run("produce more", program.produce, FIRST, MORE, "gzip")
program.run("read again", program.read, MORE * PARTITIONS)
program.run("committed again", program.committed)
program.run("offsets", program.offsets)
program.run("offset by time", program.by_time)
program.run("groups", program.groups)
program.run("offsets of the group", program.offsets_of_group)
program.run("alter", program.alter)
program.run("delete the group", program.delete_group)
program.run("delete", program.delete)
program.show()
