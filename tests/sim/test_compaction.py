"""``__consumer_offsets`` compacted while in use: a restarted node still knows every offset."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from barnabas.broker.settings.node_config import load
from barnabas.client.connection.connection import Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_commit, offset_fetch
from tests.harness.seeds import seeds
from tests.sim.simulated_loop import SimulatedLoop, seeded_runner
from tests.sim.test_daemon import (
    HOST,
    SINGLE_NODE_SETTINGS,
    SingleNodeCluster,
    crash,
    eventually,
    prepared,
)

GROUPS = 12
PARTITIONS = 1
COMMITS = 200
OFFSETS = Path("/data/__consumer_offsets-0")


def compacting_cluster(loop: SimulatedLoop) -> SingleNodeCluster:
    cluster = SingleNodeCluster(loop)
    cluster.config = load(
        SINGLE_NODE_SETTINGS
        | {
            "offsets.topic.num.partitions": "1",
            "offsets.topic.segment.bytes": "3000",
            "log.cleaner.backoff.ms": "20",
            "log.cleaner.min.cleanable.ratio": "0.1",
            "log.segment.delete.delay.ms": "1",
        }
    )
    return cluster


async def commit(connection: Connection, group: str, partition: int, offset: int) -> int:
    one = offset_commit.Partition(partition_index=partition, committed_offset=offset)
    request = offset_commit.OffsetCommitRequest(
        group_id=group, topics=[offset_commit.Topic(name="t", partitions=[one])]
    )
    answer = await connection.request(request, 7)
    return int(answer.topics[0].partitions[0].error_code)


async def fetched(connection: Connection, group: str) -> dict[int, int]:
    async def ask() -> dict[int, int] | None:
        topic = offset_fetch.Topic(name="t", partition_indexes=list(range(PARTITIONS)))
        request = offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])
        answer = await connection.request(request, 6)
        if answer.error_code in (14, 16):
            return None
        assert answer.error_code == ErrorCode.NONE
        found = answer.topics[0].partitions
        return {partition.partition_index: partition.committed_offset for partition in found}

    return await eventually(ask)


def segment_bytes(cluster: SingleNodeCluster) -> int:
    names = [name for name in cluster.disk.list_directory(OFFSETS) if name.endswith(".log")]
    return sum(cluster.disk.size(OFFSETS / name) for name in names)


async def life(cluster: SingleNodeCluster) -> None:
    loop = cluster.loop
    expected: dict[str, dict[int, int]] = {}
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    await prepared(connection)
    for offset in range(COMMITS):
        group, partition = f"g{offset % GROUPS}", loop.random.randrange(PARTITIONS)

        async def done(group: str, partition: int, offset: int) -> bool | None:
            code = await commit(connection, group, partition, offset)
            return True if code == ErrorCode.NONE else None

        await eventually(partial(done, group, partition, offset))
        expected.setdefault(group, {})[partition] = offset
        await asyncio.sleep(loop.random.uniform(0, 0.02))
    checkpoint = cluster.disk.read_whole(Path("/data/cleaner-offset-checkpoint")).decode()
    (line,) = [row for row in checkpoint.split("\n") if row.startswith("__consumer_offsets 0 ")]
    assert int(line.split()[-1]) > COMMITS // 2, "compacted while commits went on"
    assert segment_bytes(cluster) < 15_000

    await crash(cluster, node, connection)

    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    await prepared(connection)
    for group, offsets in expected.items():
        found = await fetched(connection, group)
        assert {offset: found[offset] for offset in offsets} == offsets
    await connection.close()
    cluster.stop.set()
    await node


@pytest.mark.parametrize("seed", seeds(range(1, 4)))
def test_every_commit_is_there_after_compactions_and_a_power_cut(seed: int) -> None:
    simulate(seed)


def simulate(seed: int) -> None:
    """One history."""
    with seeded_runner(seed) as (runner, loop):
        runner.run(life(compacting_cluster(loop)))
