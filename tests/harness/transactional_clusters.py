"""Clusters that coordinate transactions, for tests of clients: Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from .deployments import KafkaCluster

TIMED_OUT_EVERY_MS: Final = 500
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(TIMED_OUT_EVERY_MS),
}


@pytest.fixture(scope="module")
def transactional_kafka() -> Iterator[KafkaCluster]:
    """One node of Apache Kafka that aborts what takes too long within half a second."""
    running = KafkaCluster(1, SETTINGS)
    yield running
    running.stop()
