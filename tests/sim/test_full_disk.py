"""A daemon whose disk is full: docs/spec/log.md §3.1, docs/spec/reliability.md §3 P18 and §2
failure 15.

Commits are refused with a code after which clients look for their coordinator and try again;
fetches of offsets and records go on, also after a restart on the full disk.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from barnabas.client.connection.connection import Connection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch, produce
from barnabas.protocol.records.batch import build_batch
from tests.sim.simulated_loop import seeded_runner
from tests.sim.test_daemon import (
    HOST,
    SingleNodeCluster,
    committed,
    crash,
    eventually,
    fetched,
    prepared,
    taken,
)


async def produced(connection: Connection) -> int:
    """The error code of one record for t-0."""
    data = produce.Partition(index=0, records=bytes(build_batch([(b"k", b"v")], timestamp_ms=1)))
    request = produce.ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[produce.Topic(name="t", partition_data=[data])]
    )
    answer = await connection.request(request, 7)
    return int(answer.responses[0].partition_responses[0].error_code)


async def records_of(connection: Connection) -> int:
    """How many bytes t-0 holds for a consumer."""
    partition = fetch.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[fetch.Topic(topic="t", partitions=[partition])],
    )
    answer: Any = await connection.request(request, 8)
    result = answer.responses[0].partitions[0]
    assert result.error_code == ErrorCode.NONE
    return len(result.records or b"")


async def refuses_and_reads(connection: Connection, acknowledged: int) -> None:
    """What is asked of a node with a full disk, and how it answers."""
    assert await produced(connection) == ErrorCode.KAFKA_STORAGE_ERROR
    for offset in (100, 101):
        assert await committed(connection, offset) == ErrorCode.NOT_COORDINATOR
    assert await fetched(connection) == acknowledged
    assert await records_of(connection) > 0


async def life(cluster: SingleNodeCluster) -> None:
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    await prepared(connection)
    assert await produced(connection) == ErrorCode.NONE
    await eventually(partial(taken, connection, 7))
    cluster.disk.is_full = True
    await refuses_and_reads(connection, 7)
    await asyncio.sleep(180)  # checkpoints, flushes, sessions
    await refuses_and_reads(connection, 7)
    cluster.disk.is_full = False
    await asyncio.sleep(5)
    assert await produced(connection) == ErrorCode.NONE
    assert await committed(connection, 8) == ErrorCode.NONE
    cluster.disk.is_full = True
    await crash(cluster, node, connection)
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    assert await fetched(connection) == 8
    await refuses_and_reads(connection, 8)
    cluster.disk.is_full = False
    await asyncio.sleep(5)
    assert await committed(connection, 9) == ErrorCode.NONE
    assert await fetched(connection) == 9
    await connection.close()
    cluster.stop.set()
    await node


def test_a_node_with_a_full_disk_refuses_cleanly_reads_on_restarts_and_heals() -> None:
    with seeded_runner(3) as (runner, loop):
        runner.run(life(SingleNodeCluster(loop)))
