"""What the tests of the producer share: scripted brokers, and a producer that retries fast."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from barnabas.client.client_config import ClientConfig
from barnabas.client.producer.producer import Producer
from barnabas.client.producer.producer_config import ProducerConfig
from tests.client.scripted_cluster import ScriptedCluster, scripted_cluster

CLIENT = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=5, api_timeout_ms=60_000)
QUICK = ProducerConfig(retry_backoff_ms=2)


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with scripted_cluster(2) as cluster:
        yield cluster


@pytest.fixture
async def producer(cluster: ScriptedCluster) -> AsyncIterator[Producer]:
    async with Producer(cluster.bootstrap, QUICK, client=CLIENT) as producer:
        yield producer
