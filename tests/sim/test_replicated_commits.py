"""Commits on three shipped nodes: what was acknowledged or served once is never taken back.

Source: docs/spec/coordinator.md §3.4; docs/spec/coordinator.md §3.9 checks C3.1, C3.2 and C3.6;
docs/spec/reliability.md §3 P1 and P3.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import find_coordinator, offset_commit, offset_fetch
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.cluster import NODES, Cluster, Machine, eventually, simulated_cluster
from tests.sim.numbered_faults import inject
from tests.sim.test_replication import TOPIC, created

GROUPS = ("a", "b", "c", "d")
PARTITIONS = 2
ROUNDS = 6
SEEDS = (1, 2, 3, 4, 102)
"""In the last one nodes are back within their sessions, and lead before they know the topics."""

PASSING = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""What a client is told while a coordinator changes, besides nothing at all."""


class Commits:
    """What one group was told about one partition."""

    def __init__(self) -> None:
        self.sent = -1
        self.acknowledged = -1
        self.served = -1

    @property
    def least(self) -> int:
        """What must not be gone behind any more."""
        return max(self.acknowledged, self.served)


async def coordinator(cluster: Cluster, group: str) -> int | None:
    request = find_coordinator.FindCoordinatorRequest(key=group)
    for node in cluster.loop.random.sample(NODES, len(NODES)):
        if cluster.machines[node].is_up:
            answer = await cluster.ask(node, request, 2)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                return int(answer.node_id)
    return None


async def commit_all_the_time(cluster: Cluster, group: str, seen: Commits) -> None:
    while True:
        await asyncio.sleep(cluster.loop.random.uniform(0, 0.05))
        node = await coordinator(cluster, group)
        if node is None:
            continue
        seen.sent += 1
        offset = seen.sent
        partition = offset_commit.Partition(partition_index=0, committed_offset=offset)
        request = offset_commit.OffsetCommitRequest(
            group_id=group, topics=[offset_commit.Topic(name=TOPIC, partitions=[partition])]
        )
        answer = await cluster.ask(node, request, 7)
        if answer is None:
            continue
        code = answer.topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            seen.acknowledged = offset
        else:
            assert code in PASSING, ErrorCode(code).name  # type: ignore[call-arg]


async def fetched(cluster: Cluster, group: str) -> int | None:
    node = await coordinator(cluster, group)
    if node is None:
        return None
    topic = offset_fetch.Topic(name=TOPIC, partition_indexes=[0])
    request = offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])
    answer = await cluster.ask(node, request, 6)
    if answer is None:
        return None
    if answer.error_code:
        assert answer.error_code in PASSING
        return None
    return int(answer.topics[0].partitions[0].committed_offset)


async def fetch_all_the_time(cluster: Cluster, group: str, seen: Commits) -> None:
    while True:
        await asyncio.sleep(cluster.loop.random.uniform(0, 0.1))
        least = seen.least
        offset = await fetched(cluster, group)
        if offset is not None:
            assert offset >= least, f"{group} was at {least} and is at {offset}"
            seen.served = max(seen.served, offset)


async def in_sync(cluster: Cluster) -> bool | None:
    for index in range(PARTITIONS):
        path = znodes.partition_state_path(OFFSETS_TOPIC, index)
        data, _ = cluster.ensemble.tree.get(path, None)
        if len(znodes.PartitionState.from_json(data).isr) < len(NODES):
            return None
    return True


async def inject_fault(cluster: Cluster, machine: Machine) -> None:
    """One accident of one machine that ends its life, or cuts it off from another one.

    After a power cut, what was not flushed is on one machine less: the next accident waits.
    """
    rng = cluster.loop.random
    kind = rng.choice(("kill", "kill", "power", "cut", "stop"))
    pause = rng.choice((0.0, 0.3, 2.0, 9.0))
    if kind == "cut":
        others = [other for other in cluster.machines.values() if other is not machine]
        cluster.loop.network.cut(machine.name, rng.choice(others).name)
        await asyncio.sleep(pause)
        cluster.loop.network.heal(machine.name)
        return
    if kind == "stop":
        await machine.stop()
    else:
        await machine.kill(with_power_cut=kind == "power")
    await asyncio.sleep(pause)
    await machine.start()
    if kind == "power":
        await eventually(lambda: in_sync(cluster))


async def scenario(cluster: Cluster) -> dict[str, Commits]:
    seen = {group: Commits() for group in GROUPS}
    await cluster.start()
    await created(cluster)
    for group in GROUPS:
        await eventually(lambda group=group: coordinator(cluster, group))  # type: ignore[misc]
    await eventually(lambda: in_sync(cluster))
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(activity(cluster, group, seen[group]))
            for group in GROUPS
            for activity in (commit_all_the_time, fetch_all_the_time)
        ]
        for _ in range(ROUNDS):
            await asyncio.sleep(cluster.loop.random.uniform(0.1, 1.5))
            machine = cluster.machines[cluster.loop.random.choice(NODES)]
            await inject(machine.name, partial(inject_fault, cluster, machine))
            if cluster.loop.random.random() < 0.7:
                await eventually(lambda: in_sync(cluster))
        for task in running:
            task.cancel()
    for group, commits in seen.items():
        found = await eventually(lambda group=group: fetched(cluster, group))  # type: ignore[misc]
        assert commits.least <= found <= commits.sent
    await eventually(lambda: in_sync(cluster))
    await cluster.stop()
    return seen


def simulate(seed: int) -> None:
    """One history of six accidents."""
    with simulated_cluster(seed, offsets_topic_replication_factor="3") as (runner, cluster):
        seen = runner.run(scenario(cluster))
    assert all(commits.acknowledged > 20 for commits in seen.values())
    assert all(commits.served > 20 for commits in seen.values())


@pytest.mark.parametrize("seed", seeds(SEEDS, sorted({*range(5, 1000)} - {*SEEDS})))
def test_a_committed_offset_never_goes_backwards(seed: int) -> None:
    simulate(seed)
