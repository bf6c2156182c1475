"""Clusters that coordinate transactions, for tests of clients: ours and Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from .deployments import Deployment, KafkaCluster, OwnCluster
from .steady_settings import STEADY

TIMED_OUT_EVERY_MS: Final = 500
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(TIMED_OUT_EVERY_MS),
}


@pytest.fixture(scope="module", params=["barnabas", pytest.param("kafka", marks=pytest.mark.kafka)])
def transactional(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """One node that aborts what takes too long within half a second."""
    running: Deployment
    if request.param == "kafka":
        running = KafkaCluster(1, SETTINGS)
    else:
        running = OwnCluster(1, {**STEADY, **SETTINGS})
    yield running
    running.stop()
