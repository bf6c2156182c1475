"""A node without others whose offsets partition is damaged: docs/decisions/0009."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages import offset_fetch
from barnabas.protocol.records import batch
from tests.sim.simulated_loop import seeded_runner
from tests.sim.test_daemon import (
    HOST,
    SingleNodeCluster,
    committed,
    eventually,
    fetched,
    prepared,
    taken,
)

LOG = Path(f"/data/__consumer_offsets-{group_partition('g', 3)}/{0:020d}.log")
IN_THE_VALUE = -6


async def answer(connection: Connection, group: str) -> tuple[ErrorCode, int] | None:
    """What a fetch of t-0 is told once it is no longer 16."""
    topic = offset_fetch.Topic(name="t", partition_indexes=[0])
    request = offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])
    found: Any = await connection.request(request, 6)
    if found.error_code == ErrorCode.NOT_COORDINATOR:
        return None
    offset = -1 if found.error_code else found.topics[0].partitions[0].committed_offset
    return ErrorCode(found.error_code), int(offset)  # type: ignore[call-arg]


async def life(cluster: SingleNodeCluster, index: int) -> list[tuple[ErrorCode, int]]:
    """Commit 7, 8, 9; stop; damage one of the batches; start; what two groups are told."""
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    await prepared(connection)
    await eventually(partial(taken, connection, 7))
    for offset in (8, 9):
        assert await committed(connection, offset) == ErrorCode.NONE
    assert await fetched(connection) == 9
    await connection.close()
    cluster.stop.set()
    await node
    data = cluster.disk._files[LOG].data
    position, size = list(batch.iterate(bytes(data)))[index]
    data[position + size + IN_THE_VALUE] ^= 1
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    await asyncio.sleep(15)
    others = (f"other-{number}" for number in range(99))
    other = next(name for name in others if group_partition(name, 3) == group_partition("g", 3))
    told = [await eventually(partial(answer, connection, group)) for group in ("g", other)]
    assert await committed(connection, 10) == ErrorCode.NONE
    assert await fetched(connection) == 10
    await connection.close()
    cluster.stop.set()
    await node
    return told


@pytest.mark.parametrize(
    ("index", "told"),
    [(-2, (ErrorCode.NONE, 9)), (-1, (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1))],
    ids=["a later commit is whole", "the last commit is damaged"],
)
def test_all_but_the_damaged_commit_is_served_and_the_log_names_the_command(
    index: int, told: tuple[ErrorCode, int], caplog: pytest.LogCaptureFixture
) -> None:
    with seeded_runner(3) as (runner, loop):
        found = runner.run(life(SingleNodeCluster(loop), index))
    assert found == [told, (ErrorCode.NONE, -1)], "a new group is none of those in the damage"
    assert "serves a damaged log, and no other replica is in sync" in caplog.text
    assert f"`barnabas log repair {LOG.parent}`" in caplog.text
