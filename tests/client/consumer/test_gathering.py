"""Batches and frames: what was taken for one that never came to be is handed out by the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.client.client_config import ClientConfig
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.consumer_config import ConsumerConfig
from barnabas.client.consumer.fetch_config import FetchConfig
from barnabas.client.errors import DecodingFailed
from barnabas.client.topology import TopicPartition
from tests.client.scripted_cluster import ScriptedCluster, scripted_cluster
from tests.client.scripted_transactions import until

FIRST = ConsumerConfig(auto_offset_reset="earliest")
QUICK = FetchConfig(max_wait_ms=20, partition_max_bytes=120)
"""A batch at a time."""
CLIENT = ClientConfig(retry_backoff_ms=1, retry_backoff_ms_max=5)
LONG_S = 60.0


@pytest.fixture
async def cluster() -> AsyncIterator[ScriptedCluster]:
    async with scripted_cluster(1) as cluster:
        yield cluster


def filled(cluster: ScriptedCluster, topic: str, *batches: int) -> TopicPartition:
    """A topic with batches of so many records, whose values are their offsets."""
    (topic_partition,) = cluster.topic(topic)
    offset = 0
    for count in batches:
        cluster.logs[topic_partition].add(
            *(b"%d" % number for number in range(offset, offset + count))
        )
        offset += count
    return topic_partition


def reading(cluster: ScriptedCluster, *topics: str) -> Consumer:
    return Consumer(cluster.bootstrap, *topics, config=FIRST, fetch=QUICK, client=CLIENT)


async def fetched(consumer: Consumer, *topic_partitions: TopicPartition) -> None:
    """Return when all of these have something ready, or have failed."""
    fetcher = consumer._fetcher
    while not all(one in fetcher._ready or one in fetcher._failed for one in topic_partitions):
        await fetcher._arrived.wait()


async def test_a_partition_that_fails_does_not_take_records_of_others_along(
    cluster: ScriptedCluster,
) -> None:
    """They had been taken for the batch, and were handed out to nobody."""
    good, bad = filled(cluster, "good", 5), filled(cluster, "bad", 2, 3)
    spoilt = cluster.logs[bad].batches
    spoilt[1] = spoilt[1][:-1] + b"\7"
    found: dict[str, list[int]] = {"good": [], "bad": []}
    async with reading(cluster, "good", "bad") as consumer:
        await fetched(consumer, good, bad)
        failures: list[tuple[str, int]] = []
        while not failures or sum(map(len, found.values())) < 7:
            try:
                batch = await consumer.next_batch(timeout_s=LONG_S, gather_s=0.05)
            except DecodingFailed as error:
                failures.append((error.topic, error.offset))
                continue
            assert batch is not None
            for record in batch:
                found[record.topic].append(record.offset)
    assert found == {"good": [0, 1, 2, 3, 4], "bad": [0, 1]}
    assert failures == [("bad", 2)]


async def test_a_batch_that_is_given_up_leaves_its_records_to_the_next(
    cluster: ScriptedCluster,
) -> None:
    topic_partition = filled(cluster, "t", 5)
    async with reading(cluster, "t") as consumer:
        await fetched(consumer, topic_partition)
        gathering = asyncio.create_task(consumer.next_batch(timeout_s=None, gather_s=LONG_S))
        await until(lambda: topic_partition not in consumer._fetcher._ready)
        gathering.cancel()
        await asyncio.wait([gathering])
        assert consumer.position(topic_partition) == 0
        batch = await consumer.next_batch(5, timeout_s=None, gather_s=LONG_S)
        assert batch is not None
        assert [record.offset for record in batch] == [0, 1, 2, 3, 4]


async def test_a_frame_is_handed_out_whole_or_not_at_all(cluster: ScriptedCluster) -> None:
    """An automatic commit stored what had been gathered, though the caller had none of it yet."""
    topic_partition = filled(cluster, "t", 3, 3)
    async with reading(cluster, "t") as consumer:
        gathering = asyncio.create_task(consumer.to_arrow(100, timeout_s=LONG_S))
        await until(lambda: consumer._fetcher.position(topic_partition) == 6)
        assert consumer._subscription.handed_out() == consumer._subscription.finished() == {}
        gathering.cancel()
        await asyncio.wait([gathering])
        table = await consumer.to_arrow(6, timeout_s=LONG_S)
        assert table["offset"].to_pylist() == [0, 1, 2, 3, 4, 5]
        assert consumer._subscription.handed_out()[topic_partition].offset == 6


async def test_a_partition_that_is_assigned_again_is_read_from_its_new_offset(
    cluster: ScriptedCluster,
) -> None:
    """The rest of what was in hand was given out first."""
    topic_partition = filled(cluster, "t", 10)
    found: list[int] = []
    async with reading(cluster, "t") as consumer:
        async for record in consumer:
            found.append(record.offset)
            if len(found) == 2:
                await consumer.assign({topic_partition: 8})
            if record.offset == 9:
                break
        assert found == [0, 1, 8, 9]
        await consumer.assign({topic_partition: 4})
        assert consumer.position(topic_partition) == 4
