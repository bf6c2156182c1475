"""A whole data directory, written by the shipped daemon on a simulated disk, and how it is copied.

Every kind of file that a node leaves behind is in it: segments with their indexes and snapshots,
aborted transactions, checkpoints, the notes of node and topics, an offsets snapshot and what came
after it.
Source: docs/log.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from barnabas.broker import daemon
from barnabas.broker.node import Node
from barnabas.broker.settings.node_config import load
from barnabas.client.connection.connection import Connection
from barnabas.coordinator import standby_snapshots
from barnabas.coordinator.ports import SNAPSHOT
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    create_topics,
    delete_records,
    find_coordinator,
    offset_commit,
    produce,
)
from barnabas.protocol.records.batch import build_batch
from barnabas.protocol.records.control import Marker, encode_marker
from tests.sim.simulated_files import Content, SimulatedFiles
from tests.sim.simulated_loop import SimulatedLoop
from tests.sim.test_daemon import HOST, SINGLE_NODE_SETTINGS, SingleNodeCluster, eventually
from tests.sim.znode_tree import SimTree, Znode

PLAIN, COMPACTED, TRANSACTIONS = "plain", "compacted", "transactions"
TOPICS: Final = (PLAIN, COMPACTED, TRANSACTIONS)
LAST_OFFSET: Final = 300
"""What the first group committed last; each other one more."""
GROUPS: Final = tuple(f"group-{number}" for number in range(5))
KINDS: Final = {
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    "offsets-cache",
    "offsets-cache-increment",
    "meta.properties",
    "zookeeper-session",
    ".kafka_cleanshutdown",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
}
"""What must be there, by the end of its name."""
CLEAN: Final = Path("/data/.kafka_cleanshutdown")
SEED: Final = 1
_LIVES: Final = 3
_PRODUCER: Final = 7
_SETTINGS: Final = SINGLE_NODE_SETTINGS | {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.segment.bytes": "2000",
    "log.segment.bytes": "1200",
    "log.index.interval.bytes": "200",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.segment.delete.delay.ms": "1",
}


@dataclass(frozen=True)
class Directory:
    """What a stopped node left on its disk and in ZooKeeper."""

    files: Mapping[Path, bytes]
    znodes: Mapping[str, Znode]
    zxid: int
    wall_ms: int


def cluster_of(loop: SimulatedLoop, stored: Directory, **settings: str) -> SingleNodeCluster:
    """A machine and an ensemble with copies of what is stored."""
    loop.wall_shift_ms = stored.wall_ms - loop.wall_ms()
    cluster = SingleNodeCluster(loop)
    cluster.config = load(_SETTINGS | settings)
    for path, data in stored.files.items():
        content = Content(loop.wall_ms)
        content.data += data
        content.sync()
        cluster.disk.make_directory(path.parent)
        cluster.disk._files[path] = content
        cluster.disk._safe_files[path] = content
    tree: SimTree = cluster.ensemble.tree
    tree.nodes = {
        path: dataclasses.replace(znode, children=set(znode.children))
        for path, znode in stored.znodes.items()
    }
    tree.zxid = stored.zxid
    return cluster


def written() -> Directory:
    """The directory, the same at every call."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(SEED)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimulatedLoop)
        stored = runner.run(_told(loop))
    missing = [kind for kind in KINDS if not any(p.name.endswith(kind) for p in stored.files)]
    assert not missing, f"no file of the kind {missing}"
    return stored


async def _told(loop: SimulatedLoop) -> Directory:
    cluster = SingleNodeCluster(loop)
    cluster.config = load(_SETTINGS | {"log.cleaner.backoff.ms": "20"})
    for life in range(_LIVES):
        with _noticed() as nodes:
            running = await cluster.start()
        connection = await Connection.open(HOST, 9092)
        if life == 0:
            await _created(connection)
        await _filled(connection, nodes[-1], life)
        if life == _LIVES - 1:
            await eventually(partial(_saved, connection, cluster.disk))
            for place, group in enumerate(GROUPS):  # what the increment has, at the stop
                await committed(connection, group, LAST_OFFSET + place)
            await _deleted(connection, PLAIN, 5)
            await eventually(lambda: _compacted(cluster.disk))
        await connection.close()
        cluster.stop.set()
        await running
    tree = cluster.ensemble.tree
    files = {path: bytes(content.data) for path, content in cluster.disk._files.items()}
    return Directory(files, dict(tree.nodes), tree.zxid, loop.wall_ms())


@contextlib.contextmanager
def _noticed() -> Iterator[list[Node]]:
    """The nodes that begin meanwhile."""
    found: list[Node] = []

    class Noticed(Node):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            found.append(self)

    with (
        patch.object(daemon, "Node", Noticed),
        patch.object(standby_snapshots, "TAIL_MIN", 1),  # else a snapshot is not worth it
    ):
        yield found


async def _created(connection: Connection) -> None:
    policy = create_topics.Config(name="cleanup.policy", value="compact")
    topics = [
        create_topics.Topic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[policy] if name == COMPACTED else [],
        )
        for name in TOPICS
    ]
    request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=5000)

    async def ask() -> bool | None:
        made = await connection.request(request, 5)
        codes = {topic.error_code for topic in made.topics}
        return True if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS} else None

    await eventually(ask)


async def _filled(connection: Connection, node: Node, life: int) -> None:
    for number in range(6):
        pairs = [(b"k%d" % key, b"value %d of life %d" % (number, life) * 4) for key in (1, 2)]
        sequence = life * 12 + number * 2
        await produced(connection, PLAIN, pairs, sequence)
        keys = [b"key %d" % ((number + step) % 5) for step in (0, 2)]
        await produced(connection, COMPACTED, [(key, pairs[0][1]) for key in keys])
    for number in range(4):
        _transaction(node, life * 4 + number, Marker.COMMIT if number % 2 else Marker.ABORT)
        await produced(connection, TRANSACTIONS, [(b"k", b"plain %d" % number * 6)])
    for round_ in range(3):
        for place, group in enumerate(GROUPS):
            await committed(connection, group, 100 * life + 10 * round_ + place)


def _transaction(node: Node, number: int, end: Marker) -> None:
    """Two records and the marker, as producers and coordinators of Kafka's leave them."""
    partition = node._replicas.get(TRANSACTIONS, 0)
    assert partition is not None
    producer, now = 100 + number, 1_795_219_200_000
    records = build_batch(
        [(b"k", b"%s %d" % (end.name.encode(), number) * 4)] * 2,
        timestamp_ms=now,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    marker = build_batch(
        [encode_marker(end, 0)],
        timestamp_ms=now,
        producer_id=producer,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    partition.log.append(records, leader_epoch=partition.leader_epoch, is_client=True)
    partition.log.append(marker, leader_epoch=partition.leader_epoch, is_client=False)


async def produced(
    connection: Connection, topic: str, pairs: list[tuple[bytes, bytes]], sequence: int = -1
) -> None:
    """Acknowledged by the only replica; ``sequence`` is that of an idempotent producer."""
    await eventually(lambda: _taken(connection, topic, pairs, sequence))


async def _taken(
    connection: Connection, topic: str, pairs: list[tuple[bytes, bytes]], sequence: int
) -> bool | None:
    code, _ = await produce_once(connection, topic, pairs, sequence)
    assert code in PASSING, code
    return True if code == ErrorCode.NONE else None


PASSING: Final = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""What a node says until it has taken up its duties."""


async def produce_once(
    connection: Connection, topic: str, pairs: list[tuple[bytes, bytes]], sequence: int = -1
) -> tuple[int, int]:
    """Error code and base offset of one batch."""
    is_idempotent = sequence >= 0
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    made = build_batch(
        pairs,
        timestamp_ms=loop.wall_ms(),
        producer_id=_PRODUCER if is_idempotent else -1,
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=sequence,
    )
    part = produce.Partition(index=0, records=bytes(made))
    request = produce.ProduceRequest(
        acks=-1,
        timeout_ms=5000,
        topic_data=[produce.Topic(name=topic, partition_data=[part])],
    )
    answer = await connection.request(request, 7)
    result = answer.responses[0].partition_responses[0]
    return result.error_code, result.base_offset


async def commit_once(connection: Connection, group: str, offset: int) -> int:
    """The error code of a commit of the plain topic's partition."""
    part = offset_commit.Partition(partition_index=0, committed_offset=offset)
    request = offset_commit.OffsetCommitRequest(
        group_id=group, topics=[offset_commit.Topic(name=PLAIN, partitions=[part])]
    )
    answer = await connection.request(request, 7)
    return int(answer.topics[0].partitions[0].error_code)


async def committed(connection: Connection, group: str, offset: int) -> None:
    """Tried until it is acknowledged."""

    async def ask() -> bool | None:
        code = await commit_once(connection, group, offset)
        assert code in PASSING, code
        if code != ErrorCode.NONE:
            await _coordinated(connection, group)
        return True if code == ErrorCode.NONE else None

    await eventually(ask)


async def _coordinated(connection: Connection, group: str) -> None:
    """Have the offsets topic made."""
    await connection.request(find_coordinator.FindCoordinatorRequest(key=group), 2)


async def _deleted(connection: Connection, topic: str, offset: int) -> None:
    part = delete_records.Partition(partition_index=0, offset=offset)
    request = delete_records.DeleteRecordsRequest(
        topics=[delete_records.Topic(name=topic, partitions=[part])], timeout_ms=5000
    )
    answer = await connection.request(request, 1)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


async def _saved(connection: Connection, disk: SimulatedFiles) -> bool | None:
    """Commit until a segment is rolled, which makes the node write a whole snapshot."""
    for place, group in enumerate(GROUPS):
        await committed(connection, group, LAST_OFFSET - 10 + place)
    await asyncio.sleep(1)
    return True if any(path.name == SNAPSHOT for path in disk._files) else None


async def _compacted(disk: SimulatedFiles) -> bool | None:
    path = Path("/data/cleaner-offset-checkpoint")
    text = disk.read_whole(path).decode() if disk.exists(path) else ""
    return True if f"\n{COMPACTED} 0 " in text else None
