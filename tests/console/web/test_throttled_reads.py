"""What the console reads of records under a quota: later, and nothing is left out."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from barnabas.client.admin.descriptions import Committed
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster
from barnabas.console.groups.plan import OffsetChange
from barnabas.console.web.changes.preview import previews
from barnabas.console.web.records.masking import Masks
from barnabas.console.web.records.scan import fetched
from tests.client.scripted_cluster import ScriptedCluster, scripted_cluster


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedCluster]:
    async with scripted_cluster(1) as cluster:
        yield cluster


async def test_a_page_of_records_shows_what_a_quota_held_back(scripted: ScriptedCluster) -> None:
    (place,) = scripted.topic("t")
    scripted.logs[place].add(b"0", b"1")
    scripted.fetches_throttled = 2
    async with Cluster(scripted.bootstrap, ClientConfig(retry_backoff_ms=1)) as cluster:
        records, following = await fetched(cluster, place, 0, 2, 1 << 16)
    assert ([record.value for record in records], following) == ([b"0", b"1"], 2)


async def test_a_preview_shows_what_a_quota_held_back(scripted: ScriptedCluster) -> None:
    (place,) = scripted.topic("t")
    scripted.logs[place].add(b"0", b"1")
    scripted.fetches_throttled = 2
    change = OffsetChange(
        group="g", topic_partition=place, old=Committed(offset=2), new=Committed(offset=0)
    )
    async with Cluster(scripted.bootstrap, ClientConfig(retry_backoff_ms=1)) as cluster:
        first, last = (await previews(cluster, [change], Masks()))[place]
    assert first is not None
    assert last is not None
    assert (first.offset, last.offset) == (0, 1)
