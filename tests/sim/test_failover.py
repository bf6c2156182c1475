"""What comes to a leader by an election is replicated at once, however long it has nothing new.

Source: docs/spec/cluster.md §3.4; the time is simulated, so it is exact.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.replication.logs import a_batch
from tests.sim.cluster import NODES, Cluster, eventually, simulated_cluster

TOPICS = ("t", "u", "v", "w", "x", "y", "z")
LONG_POLL_MS = 500
"""replica.fetch.wait.max.ms, as nobody sets it."""


async def created(cluster: Cluster) -> bool | None:
    wanted = [
        create_topics.Topic(name=name, num_partitions=1, replication_factor=3) for name in TOPICS
    ]
    request = create_topics.CreateTopicsRequest(topics=wanted, timeout_ms=5000)
    for node in NODES:
        answer = await cluster.ask(node, request, 5)
        done = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        if answer is not None and all(topic.error_code in done for topic in answer.topics):
            return True
    return None


async def in_sync(cluster: Cluster, count: int) -> bool | None:
    for topic in TOPICS:
        data, _ = cluster.ensemble.tree.get(znodes.partition_state_path(topic, 0), None)
        if len(znodes.PartitionState.from_json(data).isr) != count:
            return None
    return True


def led(cluster: Cluster, topic: str) -> Partition | None:
    for machine in cluster.up():
        found = machine.partition(topic)
        if found is not None and found.is_leader:
            return found
    return None


async def led_by_another(cluster: Cluster, topic: str, former: Partition) -> Partition | None:
    found = led(cluster, topic)
    return found if found is not former else None


async def acknowledged_after_s(partition: Partition) -> float:
    """How long an append of all takes."""
    loop = asyncio.get_running_loop()
    began, done = loop.time(), asyncio.Event()
    appended = partition.append(a_batch(), acks=-1, is_client=True)
    partition.when_committed(appended.last_offset + 1, lambda code: done.set())
    await done.wait()
    return loop.time() - began


async def scenario(cluster: Cluster) -> None:
    await cluster.start()
    await eventually(lambda: created(cluster))
    await eventually(lambda: in_sync(cluster, 3))
    await asyncio.sleep(5.3)
    leaders = {topic: led(cluster, topic) for topic in TOPICS}
    gone = leaders["t"]
    assert gone is not None
    [machine] = [one for one in cluster.machines.values() if one.partition("t") is gone]
    moved = {topic: one for topic, one in leaders.items() if one and one.leader_id == machine.id}
    assert 0 < len(moved) < len(TOPICS), "both other nodes follow each other already"
    await machine.kill()
    for topic, former in moved.items():
        partition = await eventually(partial(led_by_another, cluster, topic, former))
        assert await acknowledged_after_s(partition) < 0.2 * LONG_POLL_MS / 1000
    await cluster.stop()


@pytest.mark.parametrize("seed", seeds(range(1, 4)))
def test_the_first_append_of_a_new_leader_waits_for_no_long_poll(seed: int) -> None:
    with simulated_cluster(seed) as (runner, cluster):
        runner.run(scenario(cluster))
