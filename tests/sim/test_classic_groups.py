"""Classic groups whose members, nodes and partitions come and go at random, seeded.

Every partition has exactly one owner after each rebalance, nobody else reads it, nothing is left
out, and what comes twice is what the documents say. Source: docs/spec/coordinator.md §6, §6.12
checks C6.2, C6.3, C6.4 and C6.7.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.harness.seeds import seeds
from tests.sim.classic_group import ClassicGroup
from tests.sim.cluster import NODES, Cluster, simulated_cluster

SEEDS = range(1, 4)
ROUNDS = 6
PARTITIONS_MAX = 7
NAMES = ("a", "b", "c", "d", "e")


@contextlib.asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[ClassicGroup]:
    """A cluster with a topic, to which somebody writes all the time; at the end all is audited."""
    group = ClassicGroup(cluster)
    await cluster.start()
    await group.create_topic()
    producing = asyncio.create_task(group.produce_all_the_time())
    yield group
    await group.settled()
    producing.cancel()
    await asyncio.wait({producing})
    await group.everything_processed()
    for consumer in group.consumers.values():
        await consumer.stop()
    assert not group.journal.unexcused, group.journal.unexcused
    await cluster.stop()


def simulate(seed: int, scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    replicas = {"offsets_topic_replication_factor": "3", "min_insync_replicas": "2"}
    with simulated_cluster(seed, **replicas) as (runner, cluster):
        runner.run(scenario(cluster))  # type: ignore[arg-type]


async def inject_fault(group: ClassicGroup) -> None:
    """One thing that happens to the group or to the cluster below it."""
    rng = group.cluster.loop.random
    absent = [name for name in NAMES if name not in group.consumers]
    present = list(group.consumers)
    kinds = ["node"]
    kinds += ["join"] * 2 if absent else []
    kinds += ["grow"] if group.partitions < PARTITIONS_MAX else []
    kinds += ["stop", "kill", "expire"] if len(present) > 1 else []
    kind = rng.choice(kinds)
    if kind == "join":
        await group.join(rng.choice(absent), rng.choice((1, 2, 5)))
    elif kind == "grow":
        await group.add_partition()
    elif kind == "stop":
        await group.consumers.pop(rng.choice(present)).stop()
    elif kind == "kill":
        await group.consumers.pop(rng.choice(present)).kill()
    elif kind == "expire":
        await group.consumers[rng.choice(present)].expire()
    else:
        machine = group.cluster.machines[rng.choice(NODES)]
        await machine.kill()
        await asyncio.sleep(rng.uniform(0, 8))
        await machine.start()


async def comings_and_goings(cluster: Cluster) -> None:
    rng = cluster.loop.random
    storage = rng.choice(("zookeeper", "kafka"))
    async with running(cluster) as group:
        await group.join("a", offsets_storage=storage)
        for _ in range(ROUNDS):
            await asyncio.sleep(rng.choice((0.0, 0.2, 2.0)))
            await inject_fault(group)
            if rng.random() < 0.6:
                await group.settled()


@pytest.mark.parametrize("seed", seeds(SEEDS, range(4, 300)))
def test_every_partition_is_read_by_its_one_owner_whoever_comes_and_goes(seed: int) -> None:
    simulate(seed, comings_and_goings)
