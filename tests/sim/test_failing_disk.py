"""An fsync that fails once and then succeeds: nothing is acknowledged on the word of the second.

Linux tells of a failed write once and drops the pages; whoever goes on acknowledges what is not on
disk ("fsyncgate"). Source: docs/spec/reliability.md §2 and §9.1 (rule 4); docs/spec/log.md §2.9.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.client.errors import KafkaError
from barnabas.protocol.errors import ErrorCode
from tests.harness.seeds import seeds
from tests.sim.simulated_loop import seeded_runner
from tests.sim.test_daemon import HOST, SingleNodeCluster, committed, crash, fetched, prepared

COMMITS = 16


async def code_of(connection: Connection, offset: int) -> int | None:
    """What a commit came to; None when nobody answered."""
    try:
        return await committed(connection, offset)
    except KafkaError:
        return None


async def life(cluster: SingleNodeCluster) -> bool:
    """Commit while the disk fails once, lose power, compare; whether the node ended by itself."""
    rng = cluster.loop.random
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    await prepared(connection)
    acknowledged, fails_at = -1, rng.randrange(2, COMMITS // 2)
    for offset in range(COMMITS):
        if offset == fails_at:
            cluster.disk.syncs_to_fail = 1
        if await code_of(connection, offset) == ErrorCode.NONE:
            acknowledged = offset
        if node.done():
            break
        await asyncio.sleep(rng.uniform(0, 0.2))
    is_ended = node.done() and node.exception() is not None
    await crash(cluster, node, connection)
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    found = await fetched(connection)
    assert found >= acknowledged, f"{acknowledged} was acknowledged and {found} is there"
    await connection.close()
    cluster.stop.set()
    await node
    return is_ended


def simulate(seed: int) -> bool:
    """One history."""
    with seeded_runner(seed) as (runner, loop):
        return runner.run(life(SingleNodeCluster(loop)))


@pytest.mark.parametrize("seed", seeds(range(1, 6), range(6, 300)))
def test_a_node_whose_only_disk_failed_ends_and_has_acknowledged_nothing_that_is_gone(
    seed: int,
) -> None:
    assert simulate(seed), "the node went on"
