"""Clusters that serve groups of the consumer protocol (KIP-848): Apache Kafka 4, and ours.

Timers are as short as they may be, so that tests need not wait for sessions of a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from .deployments import Deployment, OwnCluster
from .kafka_4 import Kafka4
from .steady_settings import STEADY

SESSION_MS: Final = 6_000
"""The shortest that a group may have."""
STEADY_SESSION_MS: Final = 15_000
"""What groups of the fixture have: a busy machine may keep a member waiting for seconds."""
HEARTBEAT_MS: Final = 300
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.min.session.timeout.ms": "1000",
}

KAFKA_4: Final = pytest.param("kafka-4", marks=[pytest.mark.kafka, pytest.mark.nightly])
SERVERS: Final = ("barnabas", KAFKA_4)


@pytest.fixture(scope="module", params=SERVERS)
def consumer_groups(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """One node that serves the consumer protocol."""
    running: Deployment
    settings = {**SETTINGS, "group.consumer.session.timeout.ms": str(STEADY_SESSION_MS)}
    if request.param == "kafka-4":
        running = Kafka4(settings)
    else:
        running = OwnCluster(1, {**STEADY, **settings})
    yield running
    running.stop()
