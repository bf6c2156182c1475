"""What long answers and requests of many topics cost in this process, in microseconds a partition.

    python -m benchmarks.bulk_answers [--rounds N] [--cell WORD] [--profile]

As in hot_path.py everything is real but the sockets, and the least of many rounds is printed.
Metadata of 10,000 partitions is asked for as clients do, of all topics; "changed" has one partition
change its leader before each answer. DescribeGroups names groups of ten members whose metadata and
assignments have 200 bytes each. Commits and fetches of offsets name many topics of one group.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.broker.handlers.metadata import MetadataHandler
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.net.connection import Connection
from barnabas.coordinator.ports import Caller
from barnabas.protocol.codec.compiler import encode
from barnabas.protocol.messages import (
    describe_groups,
    join_group,
    metadata,
    offset_commit,
    offset_fetch,
    sync_group,
    update_metadata,
)
from benchmarks import hot_path
from benchmarks.hot_path import NODE, Socket, until

PARTITIONS = 10_000
MEMBERS = 10
GROUPS = 100
PAYLOAD = bytes(200)
LISTENER = "CLIENT"
METADATA_VERSION, GROUPS_VERSION, OFFSETS_VERSION = 9, 5, 8
SHAPES = ((1, PARTITIONS), (1000, 10), (PARTITIONS, 1))
"""Topics, and partitions of each."""
COMMITTED = ((500, 1), (100, 5))
"""The same of requests that commit and fetch."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    units: int
    """Partitions or members of one answer."""
    ask: Callable[[], Awaitable[None]]


class Asker:
    """One connection that asks one request at a time."""

    def __init__(self, listener: object) -> None:
        self._connection, self._socket = Connection(listener), Socket()  # type: ignore[arg-type]
        self._connection.connection_made(self._socket)

    async def ask(self, frame: bytes) -> bytes:
        """The whole last piece of the answer; raises AssertionError where the node hangs up."""
        before = self._socket.written
        self._connection.data_received(frame)
        await until(lambda: self._socket.written > before)
        return self._socket.last


def frame(key: int, version: int, request: object, *, is_flexible: bool) -> bytes:
    """A request as a client sends it."""
    header = struct.pack(">hhih4s", key, version, 1, 4, b"load") + (b"\0" if is_flexible else b"")
    body = header + encode(request, version)
    return struct.pack(">i", len(body)) + body


def cluster(topics: int, partitions: int, epoch: int = 0) -> update_metadata.UpdateMetadataRequest:
    """Three nodes, and topics of three replicas each."""
    brokers = [
        update_metadata.Broker(
            id=node,
            endpoints=[
                update_metadata.Endpoint(
                    host="127.0.0.1", port=9000 + node, listener=LISTENER, security_protocol=0
                )
            ],
        )
        for node in (NODE, NODE + 1, NODE + 2)
    ]
    nodes = [broker.id for broker in brokers]
    states = [
        update_metadata.TopicState(
            topic_name=f"topic-{number:05}",
            topic_id=number.to_bytes(16),
            partition_states=[
                update_metadata.PartitionState(
                    partition_index=index,
                    leader=nodes[index % 3],
                    leader_epoch=epoch,
                    isr=nodes,
                    replicas=nodes,
                )
                for index in range(partitions)
            ],
        )
        for number in range(1, topics + 1)
    ]
    return update_metadata.UpdateMetadataRequest(
        controller_id=NODE, live_brokers=brokers, topic_states=states
    )


@asynccontextmanager
async def _node(directory: Path, topics: int, partitions: int) -> AsyncIterator[_Node]:
    async with hot_path.node(directory) as served:
        cache = served.cache
        cache.update(cluster(topics, partitions))
        handler = MetadataHandler(cache, "cluster", create=None)
        served.dispatcher.register(handler.handlers())
        yield _Node(served, cache)


@dataclass(frozen=True, slots=True)
class _Node:
    parts: hot_path.NodeParts
    cache: MetadataCache


def _metadata_rows(node: _Node, topics: int, partitions: int) -> list[Row]:
    asker = Asker(node.parts.listener)
    asked = frame(3, METADATA_VERSION, metadata.MetadataRequest(topics=None), is_flexible=True)
    epoch = 0

    async def ask() -> None:
        await asker.ask(asked)

    async def ask_changed() -> None:
        nonlocal epoch
        epoch += 1
        node.cache.update(cluster(1, 1, epoch))
        await asker.ask(asked)

    name = f"Metadata, {topics} topics of {partitions} partitions"
    rows = [Row(name, topics * partitions, ask)]
    if topics > 1:
        rows.append(Row(f"{name}, changed", topics * partitions, ask_changed))
    return rows


async def _groups(node: _Node) -> list[str]:
    """Groups of MEMBERS members each, all stable."""
    names = [f"group-{number:04}" for number in range(GROUPS)]
    await asyncio.gather(*(_fill(node, name) for name in names))  # each waits for late members
    return names


async def _fill(node: _Node, group: str) -> None:
    coordinator = node.parts.coordinator
    joined: list[join_group.JoinGroupResponse] = []
    synced: list[object] = []
    request = join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=600_000,
        rebalance_timeout_ms=600_000,
        protocol_type="consumer",
        protocols=[join_group.Protocol(name="range", metadata=PAYLOAD)],
    )
    caller = Caller("load", "127.0.0.1")
    for _ in range(MEMBERS):
        coordinator.join_group(request, 3, caller, joined.append)
    await _turning(lambda: len(joined) == MEMBERS)
    given = [sync_group.Assignment(member_id=one.member_id, assignment=PAYLOAD) for one in joined]
    for one in joined:
        sync = sync_group.SyncGroupRequest(
            group_id=group,
            generation_id=one.generation_id,
            member_id=one.member_id,
            assignments=given if one.member_id == one.leader else (),
        )
        coordinator.sync_group(sync, 2, caller, synced.append)
    await _turning(lambda: len(synced) == MEMBERS)


async def _turning(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - timers of the coordinator have to run
            await asyncio.sleep(0.001)


async def _group_rows(node: _Node) -> list[Row]:
    asker = Asker(node.parts.listener)
    request = describe_groups.DescribeGroupsRequest(groups=await _groups(node))
    asked = frame(15, GROUPS_VERSION, request, is_flexible=True)

    async def ask() -> None:
        await asker.ask(asked)

    return [Row(f"DescribeGroups, {GROUPS} groups of {MEMBERS} members", GROUPS * MEMBERS, ask)]


async def _offset_rows(node: _Node) -> list[Row]:
    rows: list[Row] = []
    asker = Asker(node.parts.listener)
    for topics, partitions in COMMITTED:
        group = f"topics-{topics}"
        names = [f"topic-{number:05}" for number in range(1, topics + 1)]
        request = offset_commit.OffsetCommitRequest(
            group_id=group,
            topics=[
                offset_commit.Topic(
                    name=name,
                    partitions=[
                        offset_commit.Partition(partition_index=index, committed_offset=7)
                        for index in range(partitions)
                    ],
                )
                for name in names
            ],
        )
        wanted = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.Group(group_id=group, topics=None)]
        )
        commit = frame(8, OFFSETS_VERSION, request, is_flexible=True)
        fetch = frame(9, OFFSETS_VERSION, wanted, is_flexible=True)
        for name, asked in (("OffsetCommit", commit), ("OffsetFetch of all", fetch)):
            text = f"{name}, {topics} topics of {partitions} partitions"
            rows.append(Row(text, topics * partitions, _asking(asker, asked)))
    return rows


def _asking(asker: Asker, asked: bytes) -> Callable[[], Awaitable[None]]:
    async def ask() -> None:
        await asker.ask(asked)

    return ask


async def least(row: Row, rounds: int) -> float:
    """Microseconds of CPU of this thread, a partition, in the best round."""
    best = float("inf")
    gc.collect()
    for _ in range(rounds):
        began = time.thread_time_ns()
        await row.ask()
        best = min(best, time.thread_time_ns() - began)
    return best / row.units / 1000


async def measure(options: argparse.Namespace) -> None:
    """One line a row."""
    for topics, partitions in SHAPES:
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
            async with _node(Path(directory), topics, partitions) as node:
                rows = _metadata_rows(node, topics, partitions)
                if partitions == 10:
                    rows += await _group_rows(node)
                    rows += await _offset_rows(node)
                await _print(rows, options)


async def _print(rows: Sequence[Row], options: argparse.Namespace) -> None:
    for row in rows:
        if options.cell and options.cell not in row.name:
            continue
        await row.ask()
        cost = await least(row, options.rounds)
        print(f"{row.name:55}{cost:8.3f} us", flush=True)
        if options.profile:
            with cProfile.Profile() as profile:
                await least(row, 5)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cell", help="only rows whose names have this in them")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(measure(options))


if __name__ == "__main__":
    main()
