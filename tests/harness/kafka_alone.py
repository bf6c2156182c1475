"""One node of Apache Kafka 3.9 that serves transactions, and transactions made with librdkafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from benchmarks.apache_kafka import kafka_node

from .deployments import SMALL_JVM
from .needs import apache_kafka_jars
from .waiting import eventually

WAIT_S: Final = 180.0


@contextmanager
def kafka_alone(directory: Path, **settings: str) -> Iterator[str]:
    """Its address; underscores stand for dots in the names of settings."""
    jars = apache_kafka_jars()
    told = {name.replace("_", "."): value for name, value in settings.items()}
    with (
        # Twenty of its ticks are the longest session: Kafka's own 18 s are granted.
        EmbeddedZooKeeper(directory / "zookeeper", tick_ms=2000) as zookeeper,
        kafka_node(
            jars, directory / "kafka", zookeeper.hosts, settings=told, jvm_flags=SMALL_JVM
        ) as node,
    ):
        eventually(lambda: _is_up(node.bootstrap), within_s=WAIT_S, what="Kafka answers")
        yield node.bootstrap


def _is_up(bootstrap: str) -> bool:
    try:
        return bool(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).brokers)
    except KafkaException:
        return False


def open_transaction(bootstrap: str, name: str, topic: str, *values: str) -> Any:
    """A producer with a transaction that has these records in partition 0, all in the log."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
            "linger.ms": 0,
        }
    )
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode(), partition=0)
    assert producer.flush(WAIT_S) == 0
    return producer


def values_shown(bootstrap: str, topic: str, partition: int, isolation: str) -> list[bytes]:
    """The values that librdkafka reads of a partition until it is at its end."""
    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []

    def is_at_end() -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        if message.error() is None:
            values.append(message.value())
            return False
        if message.error().code() != KafkaError._PARTITION_EOF:
            raise KafkaException(message.error())
        return True

    try:
        eventually(is_at_end, what=f"the end of {topic}-{partition}")
    finally:
        consumer.close()
    return values
