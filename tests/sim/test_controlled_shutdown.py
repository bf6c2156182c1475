"""A node that stops in order, though it is controller and leads, keeps nobody waiting.

Source: docs/spec/cluster.md §2.8; docs/spec/reliability.md §3 P19. The time is simulated, so it is
exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.broker.replication.partition import Partition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.replication.logs import a_batch
from tests.sim.cluster import NODES, Cluster, Machine, eventually, simulated_cluster

TOPIC, PARTITIONS = "t", 6
SOON_S = 0.2
"""Half of what a lease lasts, a fifth of replica.fetch.backoff.ms."""
BACKOFF_S = 5.0
"""controlled.shutdown.retry.backoff.ms: what a node waits that asks again."""
HANDED_OVER_S = 2.5
"""Others are given a second to hear of what they lead, and as long to hear of the role."""


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


async def scenario(cluster: Cluster) -> None:
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


def simulate(seed: int, scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    with simulated_cluster(seed) as (runner, cluster):
        runner.run(scenario(cluster))


async def serving(cluster: Cluster) -> None:
    await cluster.start()
    await eventually(lambda: created(cluster))
    await eventually(lambda: all_in_sync(cluster))


async def one_after_the_other(cluster: Cluster) -> None:
    """The last one leads everything then, and its replicas are elsewhere on dead nodes."""
    loop = asyncio.get_running_loop()
    await serving(cluster)
    for machine in cluster.machines.values():
        began = loop.time()
        await machine.stop()
        assert loop.time() - began < HANDED_OVER_S, machine.name


async def all_at_once(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    await serving(cluster)
    began = loop.time()
    await asyncio.gather(*(machine.stop() for machine in cluster.machines.values()))
    assert loop.time() - began < BACKOFF_S


async def the_last_after_a_crash(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    await serving(cluster)
    *dying, last = cluster.machines.values()
    for machine in dying:
        await machine.kill()

    async def is_alone() -> bool | None:
        registered = cluster.ensemble.tree.children(znodes.BROKER_IDS, None)
        return (registered == [str(last.id)] and is_ruling(last)) or None

    await eventually(is_alone)
    await asyncio.sleep(1)
    began = loop.time()
    await last.stop()
    assert loop.time() - began < HANDED_OVER_S


async def the_last_without_a_controller(cluster: Cluster) -> None:
    """It may not be elected itself, so nobody could arrange anything: it was asked four times."""
    loop = asyncio.get_running_loop()
    await serving(cluster)
    last = cluster.machines[3]
    for number in (1, 2):
        await cluster.machines[number].stop()
    assert not is_ruling(last)
    began = loop.time()
    await last.stop()
    assert loop.time() - began < HANDED_OVER_S


@pytest.mark.parametrize("seed", seeds(range(1, 4)))
@pytest.mark.parametrize(
    "scenario",
    [one_after_the_other, all_at_once, the_last_after_a_crash],
    ids=lambda one: one.__name__,
)
def test_a_node_waits_for_nobody_where_nobody_is_left_to_lead(
    seed: int, scenario: Callable[[Cluster], Coroutine[Any, Any, None]]
) -> None:
    """It took 12 to 17 s: three more tries, five seconds apart."""
    simulate(seed, scenario)


def test_a_broker_whose_coordinators_are_gone_leaves_at_once() -> None:
    with simulated_cluster(1) as (runner, cluster):
        cluster.settings_of[3] = {"node.roles": "broker"}
        runner.run(the_last_without_a_controller(cluster))


@pytest.mark.parametrize("seed", seeds(range(1, 6)))
def test_a_controller_that_stops_leaves_leaders_that_answer_and_another_controller(
    seed: int,
) -> None:
    simulate(seed, scenario)
