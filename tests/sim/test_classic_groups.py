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
from tests.sim.classic_group import ClassicWorld
from tests.sim.cluster import NODES, Cluster, nodes_known
from tests.sim.simulated_loop import SimulatedLoop

SEEDS = range(1, 4)
ROUNDS = 6
PARTITIONS_MAX = 7
NAMES = ("a", "b", "c", "d", "e")


@contextlib.asynccontextmanager
async def running(cluster: Cluster) -> AsyncIterator[ClassicWorld]:
    """A cluster with a topic, to which somebody writes all the time; at the end all is audited."""
    world = ClassicWorld(cluster)
    await cluster.start()
    await world.create_topic()
    producing = asyncio.create_task(world.produce_all_the_time())
    yield world
    await world.settled()
    producing.cancel()
    await asyncio.wait({producing})
    await world.everything_processed()
    for consumer in world.consumers.values():
        await consumer.stop()
    assert not world.journal.unexcused, world.journal.unexcused
    await cluster.stop()


def tell(seed: int, story: Callable[[Cluster], Awaitable[None]]) -> None:
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimulatedLoop)
        cluster = Cluster(loop, offsets_topic_replication_factor="3", min_insync_replicas="2")
        with nodes_known(cluster):
            runner.run(story(cluster))  # type: ignore[arg-type]


async def befall(world: ClassicWorld) -> None:
    """One thing that happens to the group or to the cluster below it."""
    chance = world.cluster.loop.random
    absent = [name for name in NAMES if name not in world.consumers]
    present = list(world.consumers)
    kinds = ["node"]
    kinds += ["join"] * 2 if absent else []
    kinds += ["grow"] if world.partitions < PARTITIONS_MAX else []
    kinds += ["stop", "kill", "expire"] if len(present) > 1 else []
    kind = chance.choice(kinds)
    if kind == "join":
        await world.join(chance.choice(absent), chance.choice((1, 2, 5)))
    elif kind == "grow":
        await world.add_partition()
    elif kind == "stop":
        await world.consumers.pop(chance.choice(present)).stop()
    elif kind == "kill":
        await world.consumers.pop(chance.choice(present)).kill()
    elif kind == "expire":
        await world.consumers[chance.choice(present)].expire()
    else:
        machine = world.cluster.machines[chance.choice(NODES)]
        await machine.kill()
        await asyncio.sleep(chance.uniform(0, 8))
        await machine.start()


async def comings_and_goings(cluster: Cluster) -> None:
    chance = cluster.loop.random
    storage = chance.choice(("zookeeper", "kafka"))
    async with running(cluster) as world:
        await world.join("a", offsets_storage=storage)
        for _ in range(ROUNDS):
            await asyncio.sleep(chance.choice((0.0, 0.2, 2.0)))
            await befall(world)
            if chance.random() < 0.6:
                await world.settled()


@pytest.mark.parametrize("seed", seeds(SEEDS, range(4, 300)))
def test_every_partition_is_read_by_its_one_owner_whoever_comes_and_goes(seed: int) -> None:
    tell(seed, comings_and_goings)
