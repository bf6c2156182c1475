"""No restart, no kill and no pause of a node strands our producer or our consumers.

docs/spec/reliability.md §2 failures 7 and 18: progress after each, nothing lost, nothing twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from barnabas.client import (
    Admin,
    CommitFailed,
    Consumer,
    ConsumerConfig,
    NewTopic,
    Producer,
    ProducerConfig,
    TopicPartition,
)
from barnabas.client.consumer.list_offsets import EARLIEST, LATEST, offsets_for
from barnabas.console.development.cluster import Cluster

NODES = 3
PARTITIONS = 3
WAIT_S = 240.0
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}
LASTING = ProducerConfig(delivery_timeout_ms=int(WAIT_S * 1000))
CONFIG = ConsumerConfig(
    auto_offset_reset="earliest",
    auto_commit=False,
    heartbeat_interval_ms=300,
    session_timeout_ms=30_000,
)


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with Cluster(NODES, settings=SETTINGS) as cluster:
        yield cluster


class Traffic:
    """One producer and two members of a group that go on until they are told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.seen: Counter[bytes] = Counter()
        self.commits = 0
        self._bootstrap = bootstrap
        self._topic = topic
        self._is_over = asyncio.Event()
        self._is_written = asyncio.Event()

    async def produce(self) -> None:
        number = 0
        async with Producer(self._bootstrap, LASTING) as producer:
            while not self._is_written.is_set():
                values = [b"%d" % value for value in range(number, number + 50)]
                number += len(values)
                sent = await producer.send_all(self._topic, values, keys=map(bytes, values))
                for value, place in zip(values, sent, strict=True):
                    self.acknowledged[value] = (place.partition, place.offset)
                await asyncio.sleep(0.005)

    async def consume(self) -> None:
        async with Consumer(
            self._bootstrap, self._topic, group=f"{self._topic}-g", config=CONFIG
        ) as consumer:
            while not self._is_over.is_set():
                batch = await consumer.next_batch(timeout_s=0.2)
                if batch is not None:
                    self.seen.update(batch.values())
                    with suppress(CommitFailed):
                        await batch.commit()
                        self.commits += 1

    async def progress(self, *, count: int = 500) -> None:
        """Return when everybody has come further than they are now."""
        written, commits = len(self.acknowledged), self.commits
        await until(lambda: len(self.acknowledged) >= written + count)
        await until(lambda: self.commits >= commits + 5)
        await until(lambda: self.seen.keys() >= set(list(self.acknowledged)[: written + count]))

    @property
    def is_all_seen(self) -> bool:
        return self.seen.keys() >= self.acknowledged.keys()

    def stop_producing(self) -> None:
        self._is_written.set()

    def stop(self) -> None:
        self._is_over.set()


async def test_a_rolling_restart_strands_nobody(nodes: Cluster, topic: str) -> None:
    traffic = await _through(nodes, topic, _restart_each)
    assert traffic.is_all_seen


@pytest.mark.nightly
async def test_kill_and_pause_of_nodes_strand_nobody(nodes: Cluster, topic: str) -> None:
    traffic = await _through(nodes, topic, _kill_each)
    assert traffic.is_all_seen


async def _through(nodes: Cluster, topic: str, happen: Any) -> Traffic:
    """Run the traffic while something happens; then look at what is there."""
    bootstrap = nodes.bootstrap
    async with Admin.of(bootstrap) as admin:
        wanted = NewTopic(name=topic, partitions=PARTITIONS, replication_factor=NODES)
        await admin.create_topics([wanted])
        traffic = Traffic(bootstrap, topic)
        async with asyncio.TaskGroup() as tasks:
            producing = tasks.create_task(traffic.produce())
            tasks.create_task(traffic.consume())
            tasks.create_task(traffic.consume())
            await traffic.progress()
            await happen(nodes, admin, topic, traffic)
            traffic.stop_producing()
            await producing  # what is on its way is acknowledged, too
            await until(lambda: traffic.is_all_seen)
            traffic.stop()
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        ends = await offsets_for(admin.cluster, dict.fromkeys(places, LATEST))
        starts = await offsets_for(admin.cluster, dict.fromkeys(places, EARLIEST))
    found: dict[bytes, tuple[int, int]] = {}
    async with Consumer(bootstrap, config=CONFIG) as reader:
        await reader.assign(starts)
        while any((reader.position(place) or 0) < end for place, end in ends.items()):
            batch = await reader.next_batch(timeout_s=0.2)
            for record in batch or ():
                assert record.value not in found, "a record is there twice"
                found[record.value] = (record.partition, record.offset)
    assert found == traffic.acknowledged
    return traffic


async def _restart_each(nodes: Cluster, admin: Admin, topic: str, traffic: Traffic) -> None:
    for node in nodes.nodes:
        await _in_sync(admin, topic)
        await asyncio.to_thread(node.stop)
        await traffic.progress()
        await asyncio.to_thread(nodes.restart, node.id)
        await traffic.progress()


async def _kill_each(nodes: Cluster, admin: Admin, topic: str, traffic: Traffic) -> None:
    for node in nodes.nodes:
        await _in_sync(admin, topic)
        if node is nodes.nodes[-1]:
            await asyncio.to_thread(nodes.pause, node.id)
            await asyncio.sleep(2)
            await asyncio.to_thread(nodes.resume, node.id)
        else:
            await asyncio.to_thread(nodes.kill, node.id)
            await traffic.progress()
            await asyncio.to_thread(nodes.restart, node.id)
        await traffic.progress()


async def _in_sync(admin: Admin, topic: str) -> None:
    async with asyncio.timeout(WAIT_S):
        for name in (topic, "__consumer_offsets"):
            while True:
                (described,) = await admin.describe_topics([name])
                if all(len(partition.in_sync) == NODES for partition in described.partitions):
                    break
                await asyncio.sleep(0.1)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
