"""Clusters that coordinate transactions, for tests of clients: ours and Apache Kafka's, 3.9 and 4.

Kafka 4 keeps the epochs of transactions in another way for clients that know of it (KIP-890 part
2), and serves the others as 3.9 does: ours is one of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from .deployments import Deployment, KafkaCluster, OwnCluster
from .kafka_4 import Kafka4
from .steady_settings import STEADY

TIMED_OUT_EVERY_MS: Final = 500
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(TIMED_OUT_EVERY_MS),
}


SERVERS: Final = (
    "barnabas",
    pytest.param("kafka", marks=pytest.mark.kafka),
    pytest.param("kafka-4", marks=[pytest.mark.kafka, pytest.mark.nightly]),
)


@pytest.fixture(scope="module", params=SERVERS)
def transactional(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """One node that aborts what takes too long within half a second."""
    running: Deployment
    if request.param == "kafka":
        running = KafkaCluster(1, {**STEADY, **SETTINGS})
    elif request.param == "kafka-4":
        running = Kafka4(SETTINGS)
    else:
        running = OwnCluster(1, {**STEADY, **SETTINGS})
    yield running
    running.stop()
