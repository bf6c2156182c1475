"""The shipped daemon runs on a seeded loop, with disk and ensemble in memory (decision 9)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import pytest

from barnabas.broker import daemon
from barnabas.broker.settings.node_config import load
from barnabas.client.connection.connection import Connection
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    create_topics,
    find_coordinator,
    offset_commit,
    offset_fetch,
    produce,
)
from barnabas.protocol.records.batch import build_batch
from tests.harness.seeds import seeds
from tests.sim.simulated_files import SimulatedFiles
from tests.sim.simulated_loop import SimulatedLoop, seeded_runner
from tests.sim.simulated_zookeeper import SimEnsemble

HOST = "127.0.0.1"
COMMITS = 12
SEEDS = range(1, 6)

SINGLE_NODE_SETTINGS: Final = {
    "broker.id": "1",
    "zookeeper.connect": "ensemble:2181",
    "zookeeper.session.timeout.ms": "6000",
    "log.dirs": "/data",
    "log.flush.interval.messages": "1",
    "listeners": f"PLAINTEXT://{HOST}:9092",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "3",
    "cluster.secret": "simulated",
    "beacon.enable": "false",  # datagrams are not simulated
}

T = TypeVar("T")


class SingleNodeCluster:
    """One machine with one node and one ensemble; a crash ends the node, not the machine."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.disk = SimulatedFiles(loop.wall_ms)
        self.ensemble = SimEnsemble(loop, latency=loop.network.latency, now_ms=loop.wall_ms)
        self.stop = asyncio.Event()
        self.config = load(SINGLE_NODE_SETTINGS)

    async def connect(
        self, hosts: str, *, session_timeout_ms: int, connection_timeout_ms: int, **_: object
    ) -> ZooKeeper:
        assert hosts == "ensemble:2181"
        self.session = self.ensemble.connect(session_timeout_ms)
        return self.session

    async def start(self) -> asyncio.Task[None]:
        """A node that serves; its task ends when ``stop`` is set."""
        self.stop = asyncio.Event()
        ready = asyncio.Event()
        node = asyncio.create_task(
            daemon.run(
                self.config,
                self.stop,
                ready=lambda ports: ready.set(),
                files=self.disk,
                connect=self.connect,
                now_ms=self.loop.wall_ms,
                rng=self.loop.random,
            )
        )
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({node, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert ready.is_set(), node.exception()
        return node


async def eventually(ask: Callable[[], Awaitable[T | None]]) -> T:
    """What ``ask`` returns once it is not None; simulated time costs nothing."""
    while True:
        answer = await ask()
        if answer is not None:
            return answer
        await asyncio.sleep(0.1)


async def prepared(connection: Connection) -> None:
    """A topic with one partition, and a coordinator for the group."""
    topic = create_topics.Topic(name="t", num_partitions=1, replication_factor=1)
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000)

    async def creation() -> bool | None:
        made = await connection.request(request, 5)
        return None if made.topics[0].error_code == ErrorCode.NOT_CONTROLLER else True

    await eventually(creation)

    async def coordinator() -> bool | None:
        found = await connection.request(find_coordinator.FindCoordinatorRequest(key="g"), 2)
        return True if found.error_code == ErrorCode.NONE else None

    await eventually(coordinator)


async def committed(connection: Connection, offset: int) -> int:
    """Commit one offset of t-0."""
    partition = offset_commit.Partition(partition_index=0, committed_offset=offset)
    request = offset_commit.OffsetCommitRequest(
        group_id="g", topics=[offset_commit.Topic(name="t", partitions=[partition])]
    )
    answer = await connection.request(request, 7)
    return int(answer.topics[0].partitions[0].error_code)


async def fetched(connection: Connection) -> int:
    """The committed offset of t-0, asked for until it is loaded; every other answer is 14 or 16."""

    async def ask() -> int | None:
        topic = offset_fetch.Topic(name="t", partition_indexes=[0])
        request = offset_fetch.OffsetFetchRequest(group_id="g", topics=[topic])
        answer = await connection.request(request, 6)
        if answer.error_code in (14, 16):
            return None
        assert answer.error_code == ErrorCode.NONE
        return int(answer.topics[0].partitions[0].committed_offset)

    return await eventually(ask)


async def life(cluster: SingleNodeCluster) -> str:
    """Produce and commit, lose power, start again, compare; returns a digest of it all."""
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    await prepared(connection)
    data = produce.Partition(index=0, records=bytes(build_batch([(b"k", b"v")], timestamp_ms=1)))
    request = produce.ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[produce.Topic(name="t", partition_data=[data])]
    )
    answer = await connection.request(request, 7)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    acknowledged = -1
    for offset in range(COMMITS):
        await eventually(partial(taken, connection, offset))
        acknowledged = offset
    await crash(cluster, node, connection)
    node = await cluster.start()
    connection = await Connection.open(HOST, 9092)
    found = await fetched(connection)
    assert found == acknowledged
    await connection.close()
    cluster.stop.set()
    await node
    facts = (
        found,
        cluster.loop.time(),
        cluster.loop.network.bytes_carried,
        cluster.ensemble.tree.zxid,
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


async def taken(connection: Connection, offset: int) -> bool | None:
    code = await committed(connection, offset)
    assert code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return True if code == ErrorCode.NONE else None


async def crash(
    cluster: SingleNodeCluster, node: asyncio.Task[None], connection: Connection
) -> None:
    """Power is gone: what was not synced may be lost, and nobody closes the session."""
    cluster.disk = cluster.disk.after_power_cut(cluster.loop.random)
    cluster.session.close = _never_said  # type: ignore[method-assign]
    node.cancel()
    await asyncio.wait({node})
    await connection.close()


async def _never_said() -> None:
    return None


@pytest.mark.parametrize("seed", seeds(SEEDS))
def test_acknowledged_commits_survive_a_power_cut_and_a_seed_gives_one_history(seed: int) -> None:
    first, second = (simulate(seed) for _ in range(2))
    assert first == second


def simulate(seed: int) -> str:
    """One history, and what it came to."""
    with seeded_runner(seed) as (runner, loop):
        return runner.run(life(SingleNodeCluster(loop)))
