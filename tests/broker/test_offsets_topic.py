"""One source for the number of offsets partitions: the topic (check H6)."""

from __future__ import annotations

import asyncio

from barnabas.broker.identity import lay_out
from barnabas.broker.offsets_topic import OffsetsTopic
from barnabas.protocol import znodes
from tests.sim.sim_zookeeper import SimEnsemble

PATH = "/brokers/topics/__consumer_offsets"
SEVEN = znodes.TopicAssignment(partitions=dict.fromkeys(range(7), (1,))).to_json()


async def test_a_topic_that_exists_is_found_at_once() -> None:
    zookeeper = SimEnsemble(asyncio.get_running_loop()).connect()
    await lay_out(zookeeper)
    await zookeeper.create(PATH, SEVEN)
    found: list[int] = []
    topic = OffsetsTopic(zookeeper, found.append)
    await topic.look()
    await topic.run()
    assert (found, topic.partition_count) == ([7], 7)


async def test_a_topic_that_is_created_is_found_by_every_node_alike() -> None:
    """Also across a cut connection, which takes the watch away."""
    ensemble = SimEnsemble(asyncio.get_running_loop())
    first, second = ensemble.connect(), ensemble.connect()
    await lay_out(first)
    found: list[int] = []
    topics = [OffsetsTopic(zookeeper, found.append) for zookeeper in (first, second)]
    for topic in topics:
        await topic.look()
        assert topic.partition_count is None
    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        for topic in topics:
            tasks.create_task(topic.run())
        await asyncio.sleep(0)
        second.suspend()
        await first.create(PATH, SEVEN)
        second.resume()
    assert found == [7, 7]
