"""The documents' way from offsets in ZooKeeper to offsets in Kafka and back, consumers running.

Members are bounced one after the other while others, and nodes, are killed. No message is left out,
no member starts before what was acknowledged, and what comes twice has a reason. Source:
docs/spec/coordinator.md §6.8, §6.12 checks C6.5 and C6.6.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.client.topology import TopicPartition
from barnabas.protocol.messages import find_coordinator, offset_fetch
from barnabas.protocol.zookeeper import znodes
from tests.harness.seeds import seeds
from tests.sim.classic_group import COMMIT_MS, GROUP, SESSION_MS, ClassicGroup
from tests.sim.cluster import NODES, Cluster, eventually
from tests.sim.test_classic_groups import running, simulate

SEEDS = range(1, 4)
NAMES = ("a", "b", "c")
ZOOKEEPER: dict[str, Any] = {"offsets_storage": "zookeeper", "dual_commit_enabled": False}
STEPS: tuple[dict[str, Any], ...] = (
    {"offsets_storage": "kafka", "dual_commit_enabled": True},
    {"offsets_storage": "kafka", "dual_commit_enabled": False},
    {"offsets_storage": "zookeeper", "dual_commit_enabled": True},
    ZOOKEEPER,
)
"""What members are told in each rolling bounce: two there, two back."""


async def fault(group: ClassicGroup) -> None:
    """kill -9 of a consumer or a node, any time during a bounce; whoever it was comes back."""
    rng = group.cluster.loop.random
    await asyncio.sleep(rng.uniform(0, 4))
    if rng.random() < 0.5:
        machine = group.cluster.machines[rng.choice(NODES)]
        await machine.kill()
        await asyncio.sleep(rng.uniform(0, 8))
        await machine.start()
        return
    up = [consumer for consumer in group.consumers.values() if consumer.is_up]
    if len(up) > 1:
        consumer = rng.choice(up)
        await consumer.kill()
        await asyncio.sleep(rng.uniform(0, 2 * SESSION_MS / 1000))
        await consumer.start()


async def bounce(group: ClassicGroup, settings: dict[str, Any]) -> None:
    """Stop each member, or lose it, and start it with other settings."""
    rng = group.cluster.loop.random
    for name in rng.sample(NAMES, len(NAMES)):
        consumer = group.consumers[name]
        await eventually(lambda started=consumer: as_true(started.is_up))  # type: ignore[misc]
        await (consumer.kill() if rng.random() < 0.25 else consumer.stop())
        await asyncio.sleep(rng.uniform(0, 1))
        await consumer.start(**settings)


async def as_true(found: bool) -> bool | None:
    return found or None


async def verify_health(group: ClassicGroup) -> None:
    """What the documents ask for before the next step: all are well, and have committed."""
    await group.settled()
    assert all(consumer.connector.problem is None for consumer in group.consumers.values())
    await asyncio.sleep(2 * COMMIT_MS / 1000)


async def in_kafka(cluster: Cluster) -> dict[TopicPartition, int] | None:
    for node in NODES:
        found = await cluster.ask(node, find_coordinator.FindCoordinatorRequest(key=GROUP), 2)
        if found is None or found.error_code:
            continue
        request = offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=None)
        answer = await cluster.ask(found.node_id, request, 6)
        if answer is not None and not answer.error_code:
            return {
                TopicPartition(topic.name, partition.partition_index): partition.committed_offset
                for topic in answer.topics
                for partition in topic.partitions
            }
    return None


def in_zookeeper(cluster: Cluster, topic_partition: TopicPartition) -> int:
    return int(
        cluster.ensemble.tree.nodes[znodes.consumer_offset_path(GROUP, *topic_partition)].data
    )


async def migration(cluster: Cluster) -> None:
    rng = cluster.loop.random
    async with running(cluster) as group:
        for name in NAMES:
            await group.join(name, rng.choice((1, 2)), **ZOOKEEPER)
        for settings in STEPS:
            await asyncio.sleep(rng.uniform(0, 2))
            faults = asyncio.create_task(fault(group))
            await bounce(group, settings)
            await faults
            await verify_health(group)
        assert all(len(done) > 10 for done in group.journal.processed.values())


@pytest.mark.parametrize("seed", seeds(SEEDS, range(4, 500)))
def test_a_rolling_migration_there_and_back_loses_nothing(seed: int) -> None:
    simulate(seed, migration)


async def first_step(cluster: Cluster) -> None:
    """One that reads Kafka alone may take over from the moment the last member was bounced."""
    async with running(cluster) as group:
        for name in NAMES:
            await group.join(name, **ZOOKEEPER)
        await asyncio.sleep(3)
        await bounce(group, STEPS[0])
        await group.settled()
        least = dict(group.journal.acknowledged)
        committed = await eventually(lambda: in_kafka(cluster))
        assert len(least) == group.partitions
        for topic_partition, offset in least.items():
            assert committed[topic_partition] >= offset
            assert in_zookeeper(cluster, topic_partition) >= offset


def test_after_the_first_bounce_both_stores_hold_all_that_was_acknowledged() -> None:
    simulate(1, first_step)
