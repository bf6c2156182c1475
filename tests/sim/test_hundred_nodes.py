"""A hundred shipped nodes on one loop: a topic on all of them, then the controller dies.

Source: docs/benchmarks.md, "Growth". Datagrams are not simulated: benchmarks/growth_beacons.py.
"""

from __future__ import annotations

import pytest

from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.protocol.messages import create_topics
from tests.sim.cluster import Cluster, eventually, simulated_cluster

pytestmark = pytest.mark.nightly

NODES = range(1, 101)
TOPIC, PARTITIONS = "wide", 100


def caches(cluster: Cluster) -> list[MetadataCache]:
    return [machine.node._metadata for machine in cluster.up() if machine.node is not None]


async def controller_of(cluster: Cluster) -> int:
    """Whom every node takes for the controller, once that is one that lives."""
    alive = {machine.id for machine in cluster.up()}

    async def known() -> int | None:
        found = {cache.snapshot.controller_id for cache in caches(cluster)}
        (one,) = found if len(found) == 1 else (None,)
        return one if one in alive else None

    return await eventually(known)


async def until_led(cluster: Cluster) -> None:
    """Until every node knows a living leader of every partition, the same as all others."""
    alive = {machine.id for machine in cluster.up()}

    async def leaders() -> bool | None:
        found = {
            tuple(cache.snapshot.leader(TOPIC, index) for index in range(PARTITIONS))
            for cache in caches(cluster)
        }
        is_led = len(found) == 1 and all(one in alive for one in next(iter(found)))
        return True if is_led else None

    await eventually(leaders)


async def lose_the_controller(cluster: Cluster) -> None:
    await cluster.start()
    first = await controller_of(cluster)
    wanted = create_topics.Topic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)

    async def made() -> bool | None:
        request = create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)
        answer = await cluster.ask(first, request, 5)
        return True if answer is not None and answer.topics[0].error_code in (0, 36) else None

    await eventually(made)
    await until_led(cluster)
    await cluster.machines[first].kill()
    second = await controller_of(cluster)
    assert second != first
    await until_led(cluster)
    for cache in caches(cluster):
        assert set(cache.snapshot.brokers) == set(NODES) - {first}
    await cluster.stop()


def test_a_hundred_nodes_agree_before_and_after_their_controller_dies() -> None:
    with simulated_cluster(1, NODES) as (runner, cluster):
        runner.run(lose_the_controller(cluster))
