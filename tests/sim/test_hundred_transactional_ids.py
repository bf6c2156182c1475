"""A hundred transactional ids while their coordinator and the leader of their partitions die.

Sessions are as short as beacons are: a node is replaced when it has been silent for half a second.
Source: docs/spec/transactions.md §10, check T10.1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from enum import Enum
from functools import partial
from typing import Final

import pytest

from tests.chaos.committed_reader import shown
from tests.harness.seeds import seeds
from tests.sim.cluster import NODES, Cluster, eventually, simulated_cluster
from tests.sim.numbered_faults import inject
from tests.sim.simulated_copiers import FRESH_S, fetch_of, read_of
from tests.sim.test_transactional_copies import final_log
from tests.sim.test_transactions import (
    PARTITIONS,
    SETTINGS,
    begun,
    compare,
    contents,
    created,
    settled,
)
from tests.sim.transactional_client import Lookups, Partition
from tests.sim.transactional_producers import Outcome, Transaction, TransactionalProducer
from tests.transactions.history import Row

IDS: Final = 100
REST_S: Final = 2.0
"""Between two transactions of an id, at most: a third of them are open at any time."""
SILENT_S: Final = 0.5
STABLE_AGAIN_S: Final = 2.0
WATCHED_S: Final = 3.0
POLL_S: Final = 0.02
HUNDRED: Final = {
    **SETTINGS,
    "transaction_state_log_num_partitions": "1",
    "zookeeper_session_timeout_ms": str(round(1000 * SILENT_S)),
}


class Victim(Enum):
    """Who dies, by ``kill -9``."""

    COORDINATOR = "the coordinator, which leads none of the partitions that are written to"
    LEADER = "the leader of a partition, which does not coordinate"
    BOTH_IN_ONE = "a coordinator that leads a partition, too"
    BOTH = "the coordinator and the leader of a partition, at the same moment"


class Cast:
    """Who coordinates, and who leads what."""

    def __init__(self, cluster: Cluster, coordinator: int) -> None:
        self.coordinator = coordinator
        self.leaders = {
            (topic, index): node
            for topic, index in PARTITIONS
            for node, machine in cluster.machines.items()
            if (replica := machine.partition(topic, index)) is not None and replica.is_leader
        }

    def others(self) -> list[Partition]:
        """Partitions that the coordinator does not lead."""
        return [one for one, leader in self.leaders.items() if leader != self.coordinator]

    def victims(self, victim: Victim) -> Collection[int]:
        """The nodes to be killed."""
        leader = self.leaders[self.others()[0]]
        return {
            Victim.COORDINATOR: {self.coordinator},
            Victim.LEADER: {leader},
            Victim.BOTH_IN_ONE: {self.coordinator},
            Victim.BOTH: {self.coordinator, leader},
        }[victim]


async def cast_of(cluster: Cluster) -> Cast | None:
    """None before every partition has its leader, the first replica."""
    node = await TransactionalProducer(cluster, "id-0", ()).coordinator()
    if node is None:
        return None
    found = Cast(cluster, node)
    return found if {*found.leaders.values()} == {*NODES} else None


async def stable_offset(cluster: Cluster, lookups: Lookups, partition: Partition) -> int | None:
    """As a reader of committed records is told; None when nobody answers."""
    node = await lookups.leader(partition)
    answer = None if node is None else await cluster.ask(node, fetch_of(partition, 0), 11)
    if answer is None or read_of(answer).error_code:
        return None
    return int(read_of(answer).last_stable_offset)


async def longest_standstill(
    cluster: Cluster, partition: Partition, since: float, stable: int
) -> float:
    """For how long readers of committed records got nowhere, from a moment on."""
    lookups = Lookups(cluster)
    moved, longest = since, 0.0
    while (now := cluster.loop.time()) < since + WATCHED_S:
        told = await stable_offset(cluster, lookups, partition)
        if told is not None and told > stable:
            longest = max(longest, now - moved)
            moved, stable = now, told
        await asyncio.sleep(POLL_S)
    return max(longest, now - moved)


async def committed_rows(cluster: Cluster, partition: Partition, end: int) -> list[Row]:
    """Everything that a reader of committed records is shown."""
    lookups, rows, offset = Lookups(cluster), [], 0
    while offset < end:
        node = await lookups.leader(partition)
        answer = None if node is None else await cluster.ask(node, fetch_of(partition, offset), 11)
        if answer is None or read_of(answer).error_code:
            await asyncio.sleep(POLL_S)
            continue
        found, offset = shown(read_of(answer), offset)
        rows += found
    return rows


async def kill(cluster: Cluster, nodes: Collection[int]) -> None:
    """All of them in one turn of the loop."""
    machines = [cluster.machines[node] for node in sorted(nodes)]
    await asyncio.wait({machine.end_now() for machine in machines})


async def struck(
    cluster: Cluster, nodes: Collection[int], partitions: Sequence[Partition]
) -> list[float]:
    """Kill them; how long readers of each partition had no progress, unless two are gone.

    With two of three gone no record is committed until one is back.
    """
    lookups = Lookups(cluster)
    before = {
        one: await eventually(partial(stable_offset, cluster, lookups, one)) for one in partitions
    }
    since = cluster.loop.time()
    await kill(cluster, nodes)
    if len(nodes) > 1:
        for node in sorted(nodes):
            await asyncio.sleep(cluster.loop.random.uniform(0.0, 2.0))
            await cluster.machines[node].start()
    waiting = [longest_standstill(cluster, one, since, mark) for one, mark in before.items()]
    return await asyncio.gather(*waiting)


async def scenario(cluster: Cluster, victim: Victim) -> tuple[list[Transaction], list[float]]:
    await cluster.start()
    await created(cluster)
    cast = await eventually(partial(cast_of, cluster))
    used = cast.others() if victim is Victim.COORDINATOR else PARTITIONS
    lookups = Lookups(cluster, FRESH_S)
    producers = [
        TransactionalProducer(cluster, f"id-{number}", used, lookups, REST_S)
        for number in range(IDS)
    ]
    gaps: list[float] = []

    async def strike() -> None:
        gaps.extend(await struck(cluster, cast.victims(victim), used))

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(producer.run()) for producer in producers]
        await asyncio.sleep(cluster.loop.random.uniform(1.0, 1.5))
        await inject(victim.name, strike)
        await asyncio.sleep(1.0)
        for task in running:
            task.cancel()
    for machine in cluster.machines.values():
        if not machine.is_up:
            await machine.start()
    await asyncio.gather(*(eventually(partial(begun, producer)) for producer in producers))
    await eventually(partial(settled, cluster))
    transactions = [one for producer in producers for one in producer.transactions]
    compare(cluster, transactions)
    for topic, index in PARTITIONS:
        log = final_log(contents(cluster.machines[NODES[0]], topic, index))
        assert await committed_rows(cluster, (topic, index), log.end) == log.committed
    await cluster.stop()
    return transactions, gaps


def simulate(seed: int, victim: Victim) -> None:
    """One history."""
    with simulated_cluster(seed, **HUNDRED) as (runner, cluster):
        transactions, gaps = runner.run(scenario(cluster, victim))
    told = [one.outcome for one in transactions]
    assert told.count(Outcome.COMMITTED) > IDS, "little was tried"
    if victim is not Victim.BOTH:
        assert max(gaps) < STABLE_AGAIN_S, gaps


@pytest.mark.parametrize("victim", Victim, ids=lambda one: one.name.lower())
@pytest.mark.parametrize("seed", seeds([1], range(2, 100)))
def test_a_hundred_ids_lose_and_double_nothing_when_their_nodes_die(
    seed: int, victim: Victim
) -> None:
    """Check T10.1; readers of committed records go on within two seconds."""
    simulate(seed, victim)
