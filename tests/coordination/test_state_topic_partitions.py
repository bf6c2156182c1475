"""One source for the number of offsets partitions: the topic.

Source: docs/spec/cluster.md §4.3 check H6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from barnabas.broker.coordination.state_topic_partitions import StateTopic
from barnabas.broker.lifecycle.node_identity import create_persistent_znodes
from barnabas.broker.metadata.metadata_cache import Snapshot
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_zookeeper import SimEnsemble

PATH = "/brokers/topics/__consumer_offsets"
SEVEN = znodes.TopicAssignment(partitions=dict.fromkeys(range(7), (1,))).to_json()


async def test_a_topic_that_exists_is_found_at_once() -> None:
    zookeeper = SimEnsemble(asyncio.get_running_loop()).connect()
    await create_persistent_znodes(zookeeper)
    await zookeeper.create(PATH, SEVEN)
    found: list[int] = []
    topic = StateTopic(OFFSETS_TOPIC, zookeeper, found.append)
    await topic.look()
    assert (found, topic.partition_count) == ([7], 7)


async def test_a_topic_that_is_created_is_found_by_every_node_alike() -> None:
    """Also across a cut connection, which takes the watch away."""
    ensemble = SimEnsemble(asyncio.get_running_loop())
    first, second = ensemble.connect(), ensemble.connect()
    await create_persistent_znodes(first)
    found: list[int] = []
    topics = [StateTopic(OFFSETS_TOPIC, zookeeper, found.append) for zookeeper in (first, second)]
    for topic in topics:
        await topic.look()
        assert topic.partition_count is None
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(topic.run()) for topic in topics]
        await asyncio.sleep(0)
        second.suspend()
        await first.create(PATH, SEVEN)
        second.resume()
        await until(lambda: found == [7, 7])
        for task in running:
            task.cancel()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


def told(topic_id: bytes | None) -> Snapshot:
    """What a controller says of the topic; None: that there is none."""
    if topic_id is None:
        return Snapshot()
    return Snapshot(topics={OFFSETS_TOPIC: {}}, topic_ids={OFFSETS_TOPIC: topic_id})


def stored(partitions: int, topic_id: bytes) -> bytes:
    assigned = dict.fromkeys(range(partitions), (1,))
    return znodes.TopicAssignment(partitions=assigned, topic_id=topic_id).to_json()


OLD, NEW = b"o" * 16, b"n" * 16


@pytest.mark.parametrize("is_told_first", [True, False])
async def test_the_count_of_a_deleted_topic_is_never_that_of_the_next(is_told_first: bool) -> None:
    """Whichever is heard first, of ZooKeeper and of the controller."""
    zookeeper = SimEnsemble(asyncio.get_running_loop()).connect()
    await create_persistent_znodes(zookeeper)
    await zookeeper.create(PATH, stored(7, OLD))
    heard: list[int | None] = []
    topic = StateTopic(OFFSETS_TOPIC, zookeeper, heard.append, lambda: heard.append(None))
    topic.take(told(OLD))
    await topic.look()
    running = asyncio.create_task(topic.run())
    topic.take(told(None))
    assert heard == [7, None]
    await zookeeper.delete(PATH)
    if is_told_first:
        topic.take(told(NEW))
        await zookeeper.create(PATH, stored(3, NEW))
    else:
        await zookeeper.create(PATH, stored(3, NEW))
        await topic.look()
        assert topic.partition_count is None
        topic.take(told(NEW))
    await until(lambda: topic.partition_count == 3)
    assert [count for count in heard if count is not None] == [7, 3]
    running.cancel()


async def test_a_node_that_hears_late_of_a_deletion_serves_nothing_meanwhile() -> None:
    """ZooKeeper has the next topic already, the controller's word of it is under way."""
    zookeeper = SimEnsemble(asyncio.get_running_loop()).connect()
    await create_persistent_znodes(zookeeper)
    await zookeeper.create(PATH, stored(7, OLD))
    topic = StateTopic(OFFSETS_TOPIC, zookeeper, lambda count: None)
    topic.take(told(OLD))
    await topic.look()
    await zookeeper.delete(PATH)
    await zookeeper.create(PATH, stored(3, NEW))
    await topic.look()
    assert topic.partition_count is None
    topic.take(told(None))
    topic.take(told(NEW))
    assert topic.partition_count == 3


async def test_a_zookeeper_that_lost_the_topic_ends_no_group() -> None:
    zookeeper = SimEnsemble(asyncio.get_running_loop()).connect()
    await create_persistent_znodes(zookeeper)
    await zookeeper.create(PATH, stored(7, OLD))
    topic = StateTopic(OFFSETS_TOPIC, zookeeper, lambda count: None)
    topic.take(told(OLD))
    await topic.look()
    await zookeeper.delete(PATH)
    await topic.look()
    assert topic.partition_count == 7
