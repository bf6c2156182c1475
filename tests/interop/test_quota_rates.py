"""What quotas leave to real clients over real time: librdkafka at five times its quota.

In simulated time, and without a client of others: tests/sim/test_quotas.py. Source:
docs/spec/security.md §4, its checks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.console.development.cluster import Cluster
from tests.harness.kafka_tools import CONFIGS, TOPICS, Tool
from tests.harness.steady_settings import STEADY

BOUND: Final = 1_000_000
VALUE: Final = bytes(1000)
SETTLE_S: Final = 20.0
"""What is free at first, ten seconds' worth, is used up by then."""
COUNTED_S: Final = 30.0
TENTH: Final = 0.1
RECORDS: Final = 6_000
CONSUMED_BOUND: Final = 400_000
WAIT_S: Final = 240.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, settings=STEADY) as running:
        yield running


def bind(tool: Tool, cluster: Cluster, client_id: str, quota: str) -> None:
    entity = ("--entity-type", "clients", "--entity-name", client_id)
    tool(
        CONFIGS,
        "--bootstrap-server",
        cluster.bootstrap,
        "--alter",
        *entity,
        "--add-config",
        quota,
    )


def make(tool: Tool, cluster: Cluster, topic: str) -> None:
    sizes = ("--partitions", "1", "--replication-factor", "1")
    tool(TOPICS, "--bootstrap-server", cluster.bootstrap, "--create", "--topic", topic, *sizes)


class Flood:
    """A producer that has always something to send, and never waits by itself."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self.delivered_bytes = 0
        self.problems: list[object] = []
        self.throttles_ms: list[float] = []
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.id": "flood",
                "batch.size": 50_000,
                "queue.buffering.max.messages": 5_000,
                "throttle_cb": lambda event: self.throttles_ms.append(event.throttle_time),
            }
        )

    def go_on(self, seconds: float) -> None:
        """Five times the bound, and more: as fast as the queue takes it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                self._producer.produce(self._topic, VALUE, on_delivery=self._told)
            except BufferError:
                self._producer.poll(0.01)

    def end(self) -> None:
        self._producer.purge()
        self._producer.flush(WAIT_S)

    def _told(self, error: object, _: object) -> None:
        if error is None:
            self.delivered_bytes += len(VALUE)
        elif "PURGE" not in str(error).upper():
            self.problems.append(error)


@pytest.mark.nightly
def test_a_producer_far_over_its_quota_gets_it_within_a_tenth(cluster: Cluster, tool: Tool) -> None:
    make(tool, cluster, "flooded")
    bind(tool, cluster, "flood", f"producer_byte_rate={BOUND}")
    flood = Flood(cluster, "flooded")
    flood.go_on(SETTLE_S)
    before, began = flood.delivered_bytes, time.monotonic()
    flood.go_on(COUNTED_S)
    rate = (flood.delivered_bytes - before) / (time.monotonic() - began)
    flood.end()
    assert not flood.problems
    assert any(flood.throttles_ms), "it is told to wait"
    assert rate == pytest.approx(BOUND, rel=TENTH)


@pytest.mark.nightly
def test_a_consumer_over_its_quota_reads_late_and_loses_nothing(
    cluster: Cluster, tool: Tool
) -> None:
    make(tool, cluster, "slow")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce("slow", VALUE, key=str(number))
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    bind(tool, cluster, "reader", f"consumer_byte_rate={CONSUMED_BOUND}")
    throttles: list[float] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": "reader",
            "group.id": "slow",
            "fetch.message.max.bytes": 200_000,
            "throttle_cb": lambda event: throttles.append(event.throttle_time),
        }
    )
    consumer.assign([TopicPartition("slow", 0, 0)])
    found: list[bytes] = []
    until = time.monotonic() + WAIT_S
    while len(found) < RECORDS and time.monotonic() < until:
        record = consumer.poll(0.1)
        if record is not None:
            assert record.error() is None
            found.append(record.key() or b"")
    consumer.close()
    assert found == [str(number).encode() for number in range(RECORDS)]
    assert any(throttles), "it is told to wait"
