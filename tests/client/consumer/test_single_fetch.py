"""Fetches of one partition: what a quota holds back is asked for again, and never skipped.

Source: KIP-219; KafkaApis.handleFetchRequest (3.9), which answers a throttled fetch without
partitions and without an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import inf

import pytest

from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster
from barnabas.client.consumer.single_fetch import fetch_batches
from barnabas.client.errors import KafkaError
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from tests.client.scripted_cluster import ScriptedCluster, scripted_cluster


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedCluster]:
    async with scripted_cluster(1) as cluster:
        yield cluster


async def test_what_a_quota_held_back_is_asked_for_again(scripted: ScriptedCluster) -> None:
    (place,) = scripted.topic("t")
    scripted.logs[place].add(b"0", b"1")
    scripted.fetches_throttled = 2
    async with Cluster(scripted.bootstrap, ClientConfig(retry_backoff_ms=1)) as cluster:
        assert await fetch_batches(cluster, place, 0) == scripted.logs[place].batches[0]
    assert len(scripted.asked(ApiKey.FETCH)) == 3


async def test_a_quota_that_is_never_free_is_told(scripted: ScriptedCluster) -> None:
    (place,) = scripted.topic("t")
    scripted.fetches_throttled = inf
    config = ClientConfig(retry_backoff_ms=1, api_timeout_ms=20)
    async with Cluster(scripted.bootstrap, config) as cluster:
        with pytest.raises(KafkaError) as failure:
            await fetch_batches(cluster, place, 0)
    assert failure.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_a_broker_that_does_not_lead_any_more_is_left(scripted: ScriptedCluster) -> None:
    (place,) = scripted.topic("t")
    scripted.logs[place].codes.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    async with Cluster(scripted.bootstrap, ClientConfig(retry_backoff_ms=1)) as cluster:
        assert await fetch_batches(cluster, place, 0) == b""
