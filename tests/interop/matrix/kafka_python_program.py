"""kafka-python in any release from 2.0.2 on; see steps.py."""

from __future__ import annotations

import warnings
from typing import Any

warnings.simplefilter("ignore")

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition  # noqa: E402
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic  # noqa: E402
from kafka.structs import OffsetAndMetadata  # noqa: E402

from tests.interop.matrix.steps import (  # noqa: E402
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


class Program(Steps):
    def __init__(self) -> None:
        super().__init__()
        self.admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        self.places = [TopicPartition(self.topic, number) for number in range(PARTITIONS)]

    def create(self) -> int:
        self.admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])
        return until(self.partitions, "the new topic")

    def partitions(self) -> int:
        (found,) = self.admin.describe_topics([self.topic])
        return len(found["partitions"])

    def produce(self, first: int, count: int, codec: str | None) -> Any:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, compression_type=codec)
        try:
            futures = [
                producer.send(
                    self.topic,
                    value,
                    key=key,
                    partition=where,
                    timestamp_ms=stamp,
                    headers=[("h", b"1")],
                )
                for where, stamp, key, value in sent(first, count)
            ]
            return len([future.get(timeout=60) for future in futures])
        finally:
            producer.close()

    def read(self, count: int) -> int:
        consumer = self.member()
        values: set[bytes] = set()

        def has_all() -> bool:
            for records in consumer.poll(timeout_ms=2000).values():
                values.update(record.value for record in records)
            return len(values) >= count

        try:
            until(has_all, f"{count} records")
            consumer.commit(
                {place: offset_of(consumer.position(place)) for place in consumer.assignment()}
            )
        finally:
            consumer.close()
        return len(values)

    def committed(self) -> Any:
        consumer = self.member(subscribes=False)
        try:
            return by_partition((at.partition, consumer.committed(at)) for at in self.places)
        finally:
            consumer.close()

    def member(self, *, subscribes: bool = True) -> Any:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=5_000,  # tests/harness/kafka_python_client.py says why
        )
        if subscribes:
            consumer.partitions_for_topic(self.topic)
            consumer.subscribe([self.topic])
        return consumer

    def offsets(self) -> Any:
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        try:
            first, end = consumer.beginning_offsets(self.places), consumer.end_offsets(self.places)
        finally:
            consumer.close()
        return by_partition((at.partition, [first[at], end[at]]) for at in self.places)

    def by_time(self) -> Any:
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap)
        try:
            found = consumer.offsets_for_times({self.places[0]: T0 + FIRST * 1000})
        finally:
            consumer.close()
        return found[self.places[0]].offset

    def groups(self) -> bool:
        if hasattr(self.admin, "list_consumer_groups"):
            return self.group in [found[0] for found in self.admin.list_consumer_groups()]
        return self.group in [found["group_id"] for found in self.admin.list_groups()]

    def offsets_of_group(self) -> Any:
        if hasattr(self.admin, "list_consumer_group_offsets"):
            found = self.admin.list_consumer_group_offsets(self.group)
        else:
            found = self.admin.list_group_offsets({self.group: None})[self.group]
        return by_partition((at.partition, committed.offset) for at, committed in found.items())

    def alter(self) -> Any:
        kind = ConfigResourceType.TOPIC
        self.admin.alter_configs([ConfigResource(kind, self.topic, {"retention.ms": RETENTION})])
        found = self.admin.describe_configs([ConfigResource(kind, self.topic)])
        if isinstance(found, dict):  # since 3.0
            return found["topic"][self.topic]["retention.ms"]["value"]
        rows = [row for answer in found for resource in answer.resources for row in resource[4]]
        return next(row[1] for row in rows if row[0] == "retention.ms")

    def delete_group(self) -> bool:
        forget = getattr(self.admin, "delete_consumer_groups", None) or self.admin.delete_groups
        forget([self.group])
        return until(lambda: not self.groups(), "the group is gone")

    def delete(self) -> bool:
        self.admin.delete_topics([self.topic])
        return until(lambda: self.topic not in self.admin.list_topics(), "the topic is gone")


def offset_of(position: int) -> Any:
    """What to commit: the leader epoch is a third field since 2.1."""
    return OffsetAndMetadata(position, "", *([-1] if len(OffsetAndMetadata._fields) == 3 else []))


program = Program()
program.run("create", program.create)
program.run("groups before any", program.groups)
program.run("produce", program.produce, 0, FIRST, None)
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
