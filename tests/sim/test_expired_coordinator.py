"""A coordinator whose session was lost tells nothing of its former life when it has a new one.

Source: docs/spec/reliability.md §3.1 (f), P4. With beacons a lease needs the controller's word;
with the session alone, as here, a node has one again before it hears who leads now.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.zookeeper.interface import Set
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_commit, offset_fetch
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import SESSION_MS, Cluster, eventually, simulated_cluster
from tests.sim.test_replicated_commits import coordinator, in_sync
from tests.sim.test_replication import TOPIC, created

GROUP = "a"
OLD, NEW = 1, 2
PATIENCE_S = 2.0
"""Long enough to register anew and to hear who leads."""


async def committed(cluster: Cluster, value: int, former: int | None = None) -> int | None:
    """Who acknowledged it, another node than ``former``."""
    node = await coordinator(cluster, GROUP)
    if node is None or node == former:
        return None
    partition = offset_commit.Partition(partition_index=0, committed_offset=value)
    request = offset_commit.OffsetCommitRequest(
        group_id=GROUP, topics=[offset_commit.Topic(name=TOPIC, partitions=[partition])]
    )
    answer = await cluster.ask(node, request, 7)
    is_done = answer is not None and not answer.topics[0].partitions[0].error_code
    return node if is_done else None


async def asked(cluster: Cluster, node: int) -> tuple[int, int] | None:
    """Code and offset that one node answers."""
    topic = offset_fetch.Topic(name=TOPIC, partition_indexes=[0])
    request = offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=[topic])
    answer = await cluster.ask(node, request, 6)
    if answer is None:
        return None
    if answer.error_code:
        return answer.error_code, -1
    return ErrorCode.NONE, answer.topics[0].partitions[0].committed_offset


async def scenario(cluster: Cluster) -> set[tuple[int, int]]:
    await cluster.start()
    await created(cluster)
    former = await eventually(lambda: committed(cluster, OLD))
    await eventually(lambda: in_sync(cluster))
    machine = cluster.machines[former]
    machine.isolate()
    await asyncio.sleep(2 * SESSION_MS / 1000)
    await eventually(lambda: committed(cluster, NEW, former))
    machine.rejoin()
    told = set()
    until = cluster.loop.time() + PATIENCE_S
    while cluster.loop.time() < until:
        if (answer := await asked(cluster, former)) is not None:
            told.add(answer)
        await asyncio.sleep(0.0005)
    await cluster.stop()
    return told


@pytest.mark.parametrize("seed", seeds(range(1, 6)))
def test_a_coordinator_with_a_new_session_waits_to_be_told_what_it_leads(seed: int) -> None:
    with simulated_cluster(seed, beacon_enable="false") as (runner, cluster):
        told = runner.run(scenario(cluster))
    assert told
    assert (ErrorCode.NONE, OLD) not in told


async def kept(cluster: Cluster) -> None:
    """The leader's own write comes after its new registration: the controller keeps the epoch."""
    tree = cluster.ensemble.tree
    machine = cluster.machines[1]
    await machine.start()
    await created(cluster, 1)
    await eventually(lambda: committed(cluster, OLD))
    states = [
        znodes.partition_state_path(OFFSETS_TOPIC, index)
        for index in range(2)
        if znodes.partition_state_path(OFFSETS_TOPIC, index) in tree.nodes
    ]
    before = [tree.nodes[path].data for path in states]
    assert before

    def registered(path: str) -> None:
        if path == znodes.broker_path(1) and path in tree.nodes:
            for state_path, data in zip(states, before, strict=True):
                tree.write(0, Set(state_path, data))

    tree.on_data.append(registered)
    machine.isolate()
    await asyncio.sleep(2 * SESSION_MS / 1000)
    machine.rejoin()
    await eventually(lambda: committed(cluster, NEW))
    assert [tree.nodes[path].data for path in states] == before, "the epochs were raised"
    assert await eventually(lambda: asked(cluster, 1)) == (ErrorCode.NONE, NEW)
    await cluster.stop()


@pytest.mark.parametrize("seed", seeds(range(1, 6)))
def test_a_coordinator_whose_leader_epoch_is_kept_coordinates_again(seed: int) -> None:
    with simulated_cluster(seed, offsets_topic_replication_factor="1") as (runner, cluster):
        runner.run(kept(cluster))
