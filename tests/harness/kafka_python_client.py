"""kafka-python as one of the clients that others wrote."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "(open|read)_text is deprecated", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError as KafkaPythonError
    from kafka.errors import RebalanceInProgressError
    from kafka.structs import OffsetAndMetadata

from .records import GroupDescription, Received, Sent
from .waiting import eventually

__all__ = [
    "FRESH",
    "KafkaConsumer",
    "KafkaProducer",
    "KafkaPython",
    "KafkaPythonError",
    "KafkaPythonMember",
    "OffsetAndMetadata",
    "TopicPartition",
]

FRESH: Final[Mapping[str, Any]] = {"metadata_max_age_ms": 5_000}
"""A member of a group needs this on a slow machine. A Metadata request that was on its way when a
topic was subscribed clears the wish for another (kafka-python 3.0.12, ClusterMetadata): a leader
then knows no partition to assign until the metadata is too old, after five minutes unless told."""
POLL_MS = 100
JOIN_POLL_MS = 2000
"""A poll that ends within a rebalance may lose the assignment (kafka-python 3.0.12, seen against
Apache Kafka as well) and so begin another one, which on a slow machine need not come to an end: a
member polls for long. Records end a poll at once."""


class KafkaPython:
    """Implements ClientLibrary."""

    name = "kafka-python"
    codecs: Sequence[str] = ("none", "gzip", "snappy", "lz4", "zstd")

    def create_topic(self, bootstrap: str, topic: str, partitions: int, factor: int = 1) -> None:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            admin.create_topics(
                {topic: {"num_partitions": partitions, "replication_factor": factor}}
            )
        finally:
            admin.close()

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str = "none"
    ) -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            max_request_size=8 << 20,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush(timeout=120)
            for future in futures:
                future.get(timeout=120)
        finally:
            producer.close()

    def join(self, bootstrap: str, group: str, topic: str) -> KafkaPythonMember:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **FRESH,
        )
        consumer.partitions_for_topic(topic)  # a leader without metadata assigns nothing at first
        consumer.subscribe([topic])
        return KafkaPythonMember(consumer)

    def groups(self, bootstrap: str) -> set[str]:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            return {str(group["group_id"]) for group in admin.list_groups()}
        finally:
            admin.close()

    def describe_group(self, bootstrap: str, group: str) -> GroupDescription:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            found = admin.describe_groups([group])[group]
        finally:
            admin.close()
        assert found["error"] is None
        return GroupDescription(found["group_state"], found["protocol_data"], len(found["members"]))

    def committed(self, bootstrap: str, group: str) -> dict[int, int]:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            found = admin.list_group_offsets({group: None})[group]
        finally:
            admin.close()
        return {
            topic_partition.partition: committed.offset
            for topic_partition, committed in found.items()
        }

    def offsets_at(
        self, bootstrap: str, topic: str, partition: int, timestamp_ms: int
    ) -> tuple[int, int, int | None]:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap)
        topic_partition = TopicPartition(topic, partition)
        try:
            first = consumer.beginning_offsets([topic_partition])[topic_partition]
            end = consumer.end_offsets([topic_partition])[topic_partition]
            found = consumer.offsets_for_times({topic_partition: timestamp_ms})[topic_partition]
        finally:
            consumer.close()
        return first, end, None if found is None else found.offset

    def read(self, bootstrap: str, topic: str, starts: Mapping[int, int | str]) -> list[Received]:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
        topic_partitions = {partition: TopicPartition(topic, partition) for partition in starts}
        received: list[Received] = []
        try:
            consumer.assign(list(topic_partitions.values()))
            ends = consumer.end_offsets(list(topic_partitions.values()))
            for partition, start in starts.items():
                if isinstance(start, int):
                    consumer.seek(topic_partitions[partition], start)
                else:
                    consumer.seek_to_beginning(topic_partitions[partition])
            while any(
                consumer.position(topic_partition) < ends[topic_partition]
                for topic_partition in topic_partitions.values()
            ):
                received += _received(consumer.poll(timeout_ms=POLL_MS))
        finally:
            consumer.close()
        return received


class KafkaPythonMember:
    """Implements GroupMember."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def poll(self) -> list[Received]:
        return _received(self._consumer.poll(timeout_ms=JOIN_POLL_MS))

    def assigned(self) -> set[int]:
        return {topic_partition.partition for topic_partition in self._consumer.assignment()}

    def commit(self) -> None:
        """Commit where it stands; a rebalance that is under way is gone through first."""
        topic_partitions = {
            topic_partition: OffsetAndMetadata(self._consumer.position(topic_partition), "", -1)
            for topic_partition in self._consumer.assignment()
        }

        def committed() -> bool:
            try:
                self._consumer.commit(topic_partitions)
            except RebalanceInProgressError:
                self._consumer.poll(timeout_ms=JOIN_POLL_MS)
                return False
            return True

        eventually(committed, what="a commit outside of rebalances")

    def close(self) -> None:
        self._consumer.close()


def _received(polled: Mapping[Any, Sequence[Any]]) -> list[Received]:
    return [
        Received(
            record.partition,
            record.offset,
            record.value,
            record.key,
            tuple((name, value) for name, value in record.headers),
            record.timestamp,
        )
        for records in polled.values()
        for record in records
    ]
