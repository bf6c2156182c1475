"""A node that stops in order, though it is controller and leads, keeps nobody waiting.

Source: cluster.md section 2.8; reliability.md P19. The time is simulated, so it is exact.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.replication.partition import Partition
from barnabas.protocol import znodes
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics
from tests.replication.logs import a_batch
from tests.sim.cluster import NODES, Cluster, Machine, eventually, nodes_known
from tests.sim.simulated_loop import SimulatedLoop

TOPIC, PARTITIONS = "t", 6
SOON_S = 0.2
"""Half of what a lease lasts, a fifth of replica.fetch.backoff.ms."""


async def created(cluster: Cluster) -> bool | None:
    wanted = create_topics.Topic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
    request = create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=5000)
    for node in NODES:
        answer = await cluster.ask(node, request, 5)
        done = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        if answer is not None and answer.topics[0].error_code in done:
            return True
    return None


def in_sync(cluster: Cluster, index: int) -> list[int]:
    data, _ = cluster.ensemble.tree.get(znodes.partition_state_path(TOPIC, index), None)
    return list(znodes.PartitionState.from_json(data).isr)


async def all_in_sync(cluster: Cluster) -> bool | None:
    return all(len(in_sync(cluster, index)) == 3 for index in range(PARTITIONS)) or None


def is_ruling(machine: Machine) -> bool:
    return machine.node is not None and machine.node._controller.is_active


async def acknowledged(partition: Partition) -> None:
    done = asyncio.Event()
    appended = partition.append(a_batch(), acks=-1, is_client=True)
    partition.when_committed(appended.last_offset + 1, lambda code: done.set())
    await done.wait()


async def story(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    await cluster.start()
    await eventually(lambda: created(cluster))
    await eventually(lambda: all_in_sync(cluster))
    await asyncio.sleep(5.3)
    [leaving] = [machine for machine in cluster.machines.values() if is_ruling(machine)]
    replicas = [leaving.partition(TOPIC, index) for index in range(PARTITIONS)]
    led = [one.index for one in replicas if one is not None and one.is_leader]
    assert led, "the controller leads something"
    await leaving.stop()
    began = loop.time()
    for index in range(PARTITIONS):
        assert leaving.id not in in_sync(cluster, index), "nobody waits for it"
    for index in led:
        found = [machine.partition(TOPIC, index) for machine in cluster.up()]
        [leader] = [one for one in found if one is not None and one.is_leader]
        await acknowledged(leader)
    assert loop.time() - began < SOON_S
    await eventually(lambda: another_rules(cluster))
    assert loop.time() - began < SOON_S
    await cluster.stop()


async def another_rules(cluster: Cluster) -> bool | None:
    return any(is_ruling(machine) for machine in cluster.up()) or None


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_controller_that_stops_leaves_leaders_that_answer_and_another_controller(
    seed: int,
) -> None:
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimulatedLoop)
        cluster = Cluster(loop)
        with nodes_known(cluster):
            runner.run(story(cluster))
