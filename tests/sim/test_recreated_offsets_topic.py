"""``__consumer_offsets`` deleted by force and made anew: nobody answers from the old one.

Source: docs/controller.md, "Requests of administrators"; docs/spec/coordinator.md §1.2 and §1.3.
Three shipped nodes, seeded. All of them have been started anew with snapshots of the old topic on
their disks, and have warm standbys of it, when it is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.messages import delete_topics, offset_commit, offset_fetch
from barnabas.protocol.names import FORCE_INTERNAL_CLIENT
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import (
    NODES,
    PORT,
    REQUEST_MS,
    SESSION_MS,
    Cluster,
    Machine,
    eventually,
    simulated_cluster,
)
from tests.sim.test_controlled_shutdown import is_ruling
from tests.sim.test_replicated_commits import coordinator, fetched, in_sync
from tests.sim.test_replication import TOPIC, created
from tests.sim.test_stray_replicas import DATA

GROUPS = ("a", "b", "c", "d")
OLD, NEW, NONE = 41, 7, -1
COMMITS = 20

Answers = list[tuple[float, int, str, int]]
"""When which node told an offset of which group."""


async def committed(cluster: Cluster, group: str, value: int) -> bool | None:
    node = await coordinator(cluster, group)
    if node is None:
        return None
    partition = offset_commit.Partition(partition_index=0, committed_offset=value)
    request = offset_commit.OffsetCommitRequest(
        group_id=group, topics=[offset_commit.Topic(name=TOPIC, partitions=[partition])]
    )
    answer = await cluster.ask(node, request, 7)
    return (answer is not None and not answer.topics[0].partitions[0].error_code) or None


async def ask_all_the_time(cluster: Cluster, node: int, answers: Answers) -> None:
    """What one node answers for every group, by whomever it is coordinated."""
    topic = offset_fetch.Topic(name=TOPIC, partition_indexes=[0])
    while True:
        await asyncio.sleep(0.005)
        if not cluster.machines[node].is_up:
            continue
        for group in GROUPS:
            request = offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])
            asked = cluster.loop.time()
            answer = await cluster.ask(node, request, 6)
            if answer is not None and not answer.error_code:
                found = answer.topics[0].partitions[0]
                if not found.error_code:
                    answers.append((asked, node, group, found.committed_offset))


async def deleted(cluster: Cluster) -> bool | None:
    """Have the controller delete the topic; whether it is gone from ZooKeeper."""
    if znodes.topic_path(OFFSETS_TOPIC) not in cluster.ensemble.tree.nodes:
        return True
    for machine in cluster.up():
        if not is_ruling(machine):
            continue
        try:
            link = await Connection.open(
                machine.name, PORT, client_id=FORCE_INTERNAL_CLIENT, timeout_ms=REQUEST_MS
            )
        except KafkaError:
            return None
        try:
            names = [OFFSETS_TOPIC]
            request = delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=2000)
            await link.request(request, 5, REQUEST_MS)
        except KafkaError:
            return None
        finally:
            await link.close()
    return None


async def nothing(cluster: Cluster) -> float:
    """Nothing befalls anybody; when the topic was gone, as each of these tells."""
    await eventually(lambda: deleted(cluster))
    return cluster.loop.time()


async def power_cut(cluster: Cluster) -> float:
    """One node loses power when the topic is gone: what it had is not to come back."""
    gone_at = await nothing(cluster)
    machine = some(cluster)
    await machine.kill(with_power_cut=True)
    await machine.start()
    return gone_at


async def restart_of_all(cluster: Cluster) -> float:
    """Nobody is left who remembers."""
    gone_at = await nothing(cluster)
    for machine in cluster.machines.values():
        await machine.kill(with_power_cut=cluster.loop.random.random() < 0.5)
    await cluster.start()
    return gone_at


async def node_away(cluster: Cluster) -> float:
    """A replica is away: the deletion waits for it, over a change of the controller perhaps."""
    machine = some(cluster)
    await machine.kill(with_power_cut=cluster.loop.random.random() < 0.5)
    asking = asyncio.create_task(nothing(cluster))
    await asyncio.sleep(SESSION_MS / 1000 + 4)
    await machine.start()
    return await asking


def some(cluster: Cluster) -> Machine:
    return cluster.machines[cluster.loop.random.choice(NODES)]


async def have_snapshots(cluster: Cluster) -> bool | None:
    """Whether every node has one of the old topic."""
    return (
        all(
            any(
                machine.disk.exists(DATA / name / "offsets-cache")
                for name in machine.disk.list_directory(DATA)
                if name.startswith(OFFSETS_TOPIC)
            )
            for machine in cluster.machines.values()
        )
        or None
    )


async def warmed_up(cluster: Cluster) -> None:
    """Commits in the topic, snapshots of it on every disk, all nodes started anew."""
    await cluster.start()
    for machine in cluster.machines.values():
        assert machine.node is not None
        standbys = machine.node._coordinator_host.groups.standbys
        standbys.tail_min = standbys.tail_max = 1
    await created(cluster)
    for group in GROUPS:
        await eventually(lambda group=group: coordinator(cluster, group))  # type: ignore[misc]
    await eventually(lambda: in_sync(cluster))
    for offset in range(OLD - COMMITS, OLD + 1):
        for group in GROUPS:
            await eventually(lambda g=group, o=offset: committed(cluster, g, o))  # type: ignore[misc]
    await eventually(lambda: have_snapshots(cluster))
    for machine in cluster.machines.values():
        await machine.stop()
        await machine.start()
        await eventually(lambda: in_sync(cluster))
    for group in GROUPS:
        assert await eventually(lambda group=group: fetched(cluster, group)) == OLD  # type: ignore[misc]


async def scenario(cluster: Cluster, fault: Callable[[Cluster], Awaitable[float]]) -> None:
    await warmed_up(cluster)
    answers: Answers = []
    asking = [asyncio.create_task(ask_all_the_time(cluster, node, answers)) for node in NODES]
    await asyncio.sleep(0.1)
    assert OLD in {offset for *_, offset in answers}
    gone_at = await fault(cluster)
    for group in GROUPS:
        await eventually(lambda group=group: committed(cluster, group, NEW))  # type: ignore[misc]
        assert await eventually(lambda group=group: fetched(cluster, group)) == NEW  # type: ignore[misc]
    anew_at = cluster.loop.time()
    await eventually(lambda: in_sync(cluster))
    for machine in cluster.machines.values():  # each takes over from others, and reads its log
        await machine.kill()
        await machine.start()
        await eventually(lambda: in_sync(cluster))
    for group in GROUPS:
        assert await eventually(lambda group=group: fetched(cluster, group)) == NEW  # type: ignore[misc]
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)
    await cluster.stop()
    assert {offset for asked, *_, offset in answers if asked >= gone_at} <= {NONE, NEW}
    assert {offset for asked, *_, offset in answers if asked >= anew_at} == {NEW}


@pytest.mark.parametrize("seed", seeds(range(1, 3), range(3, 100)))
@pytest.mark.parametrize(
    "fault", [nothing, power_cut, restart_of_all, node_away], ids=lambda one: one.__name__
)
def test_no_answer_is_of_the_offsets_topic_that_was_deleted(
    seed: int, fault: Callable[[Cluster], Awaitable[float]]
) -> None:
    with simulated_cluster(seed, offsets_topic_replication_factor="3") as (runner, cluster):
        runner.run(scenario(cluster, fault))
