"""Tests with a real cluster, which pytest starts by itself in about a second.

    pytest examples/test_orders.py

The fixtures come with the package: nothing is imported, nothing configured, no Docker. Your code is
given `kafka_bootstrap` as it would be given the address of any Kafka, whatever client it uses.
"""

from __future__ import annotations

from collections import Counter

import pytest

from barnabas.client import SyncConsumer, SyncProducer
from barnabas.testing import Cluster

FIRST = {"auto.offset.reset": "earliest"}


def count_orders(bootstrap: str, topic: str, group: str, most: int) -> Counter[bytes | None]:
    """The code that is tested: how many orders each guest has."""
    counts: Counter[bytes | None] = Counter()
    with SyncConsumer(bootstrap, topic, group=group, config=FIRST) as consumer:
        for batch in consumer.batches():
            with batch:
                counts.update(record.key for record in batch)
            if counts.total() >= most:
                break
    return counts


def send(bootstrap: str, topic: str, *guests: str) -> None:
    """Orders of these guests."""
    with SyncProducer(bootstrap) as producer:
        for guest in guests:
            producer.send(topic, "tea", key=guest)


# Each test has a topic and a group of its own, so that none sees what another left.
@pytest.mark.kafka_topic(partitions=3)
def test_orders_are_counted_by_guest(
    kafka_bootstrap: str, kafka_topic: str, kafka_group: str
) -> None:
    send(kafka_bootstrap, kafka_topic, "kim", "max", "kim")
    counts = count_orders(kafka_bootstrap, kafka_topic, kafka_group, 3)
    assert counts == {b"kim": 2, b"max": 1}


def test_a_restart_counts_nothing_twice(
    kafka_bootstrap: str, kafka_topic: str, kafka_group: str
) -> None:
    send(kafka_bootstrap, kafka_topic, "kim")
    count_orders(kafka_bootstrap, kafka_topic, kafka_group, 1)
    send(kafka_bootstrap, kafka_topic, "max")
    assert count_orders(kafka_bootstrap, kafka_topic, kafka_group, 1) == {b"max": 1}


def test_counting_survives_the_loss_of_a_node() -> None:
    """A cluster to break: three nodes, of which one is killed as `kill -9` does."""
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=3)
        send(cluster.bootstrap, "orders", "kim", "max")
        assert count_orders(cluster.bootstrap, "orders", "counting", 2).total() == 2
        cluster.kill(2)
        send(cluster.bootstrap, "orders", "kim")
        assert count_orders(cluster.bootstrap, "orders", "counting", 1) == {b"kim": 1}
