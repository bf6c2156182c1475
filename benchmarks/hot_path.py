"""What one OffsetFetch and one OffsetCommit cost inside this process, and where it goes.

    python -m benchmarks.hot_path [--rounds N] [--profile CELL] [--audit none|by-hand|all]
                                  [--metered]
    python -m benchmarks.hot_path --files

Everything is real (connections, dispatcher, coordinator, logs on disk) except the sockets, so a
number here is the part of a request's cost that is ours. The least of many short rounds is
printed: what else the machine does can only make a round slower. ``--audit`` says what is
recorded of offsets: nothing, what is done by hand (no commit here is), or every commit; the
records are built and thrown away. ``--metered`` counts, as a node does that tells metrics.
``--files`` prints the way of one commit from the socket to the log and back instead: each file and
function in the order in which it is called first.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.broker.coordination.coordinator_ports import CoordinatorTopics, wall_clock_ms
from barnabas.broker.handlers.groups import GroupsHandler
from barnabas.broker.metadata.metadata_cache import MetadataCache
from barnabas.broker.metrics.request_meter import MeteredDispatcher
from barnabas.broker.net.connection import Connection
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.state_log_port import StateLogPort
from barnabas.broker.runtime import gc_tuning
from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import NetworkSettings, StorageSettings
from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.log_manager import LogManager
from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.ports import OFFSETS_TOPIC, Caller
from barnabas.protocol.codec.compiler import decoder, encoder
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    leader_and_isr,
    offset_commit,
    offset_fetch,
    update_metadata,
)
from benchmarks import frames
from benchmarks.generator import RING, LoadWindow, exchanges
from benchmarks.report import Cell

NODE, VERSION = 1, 8
OFFSETS_PARTITIONS = 50
ROOT = str(Path(__file__).resolve().parents[1]) + "/"
BULK_PARTITIONS = 500
"""Partitions of each request of the bulk cells; their costs are a partition, not a request."""
BULK_KINDS = ("bulk", "fetch all")
TURNS = 1
"""Turns of the loop in one round."""
CELLS = tuple(
    Cell(kind, connections, in_flight)
    for kind in ("fetch", "commit")
    for connections, in_flight in ((1, 1), (64, 1), (8, 64))
) + tuple(
    Cell(kind, connections, in_flight)
    for kind in BULK_KINDS
    for connections, in_flight in ((1, 1), (16, 1), (4, 8))
)


class Socket(asyncio.Transport):
    """A transport that takes everything at once and keeps what came last."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0
        self.last = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The peer is this machine."""
        return ("127.0.0.1", 9) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever buffered."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Count the bytes."""
        self.written += len(data)
        self.last = bytes(data)

    def pause_reading(self) -> None:
        """Nothing more comes before it is read on."""

    def resume_reading(self) -> None:
        """What waited is in the framing already."""

    def abort(self) -> None:
        """The connection complained: the measure would be worthless."""
        raise AssertionError("the connection was closed")


@dataclass(frozen=True, slots=True)
class NodeParts:
    """The parts of a node that commits and fetches pass."""

    listener: Listener
    dispatcher: Dispatcher
    cache: MetadataCache
    coordinator: GroupCoordinator


class Alone:
    """No other node: one replica of everything, nobody to fetch from."""

    lag_max_s = 0.0

    def now(self) -> float:
        """Nothing is timed."""
        return 0.0

    def live_nodes(self) -> Sequence[int]:
        """Nobody else."""
        return ()

    def propose(self, change: object) -> None:
        """In-sync sets never change."""

    def follow(self, partition: object) -> None:
        """Everything is led here."""

    def stop(self, partition: object) -> None:
        """Nothing is fetched."""

    def wake(self) -> None:
        """Nothing is fetched."""


class Nowhere:
    """An audit log that takes everything."""

    async def write(self, entries: Sequence[object]) -> Sequence[Any]:
        """Nothing is left to be written."""
        return ()


@asynccontextmanager
async def node(
    directory: Path, audit: str = "none", *, is_metered: bool = False
) -> AsyncIterator[NodeParts]:
    """A node that leads every offsets partition, and knows the topic of the load."""
    loop = asyncio.get_running_loop()
    logs = LogManager(
        DiskFiles(),
        [directory],
        LogConfig(),
        lambda topic: {"segment.bytes": str(100 << 20), "cleanup.policy": "compact"},
        wall_clock_ms,
        intervals=StorageSettings(),
        random=random.Random(1),
    )
    await logs.load()
    replicas = ReplicaManager(
        NODE, logs, knows=lambda topic, index: True, context=Alone(), fetchers=Alone()
    )
    cache = MetadataCache()
    cache.update(_known_topics())
    coordinator = GroupCoordinator(
        node_id=NODE,
        config=CoordinatorConfig(history_enable=audit == "all"),
        log=StateLogPort(replicas, OFFSETS_TOPIC, loop),
        topics=CoordinatorTopics(
            NODE,
            cache,
            lambda topic: None,
            topic=OFFSETS_TOPIC,
            counts={OFFSETS_TOPIC: lambda: OFFSETS_PARTITIONS},
        ),
        zookeeper_offsets=None,
        loop=loop,
        now_ms=wall_clock_ms,
        random=random.Random(1),
        audit_log=None if audit == "none" else Nowhere(),
    )
    replicas.on_elected.append(lambda topic, index, epoch: coordinator.on_elected(index, epoch))
    coordinator.start(OFFSETS_PARTITIONS)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(coordinator.run())
        at_once(replicas.apply_leader_and_isr(_leads_all(), lambda: ErrorCode.NONE))
        await until(lambda: not coordinator.registry.is_loading)
        dispatcher = MeteredDispatcher(tasks) if is_metered else Dispatcher(tasks)
        if is_metered:
            coordinator.measure_commits(time.perf_counter)
        dispatcher.register(GroupsHandler(coordinator).handlers())
        listener = Listener("CLIENT", dispatcher, Limits(NetworkSettings()))
        listener.is_serving = True
        yield NodeParts(listener, dispatcher, cache, coordinator)
        coordinator.stop()
        running.cancel()
    await logs.close()


def _known_topics() -> update_metadata.UpdateMetadataRequest:
    states = [
        update_metadata.PartitionState(
            partition_index=index, leader=NODE, isr=[NODE], replicas=[NODE]
        )
        for index in range(BULK_PARTITIONS)
    ]
    topic = update_metadata.TopicState(topic_name="load", partition_states=states)
    return update_metadata.UpdateMetadataRequest(topic_states=[topic])


def _leads_all() -> leader_and_isr.LeaderAndIsrRequest:
    states = [
        leader_and_isr.PartitionState(
            partition_index=index, leader=NODE, isr=[NODE], replicas=[NODE]
        )
        for index in range(OFFSETS_PARTITIONS)
    ]
    topic = leader_and_isr.TopicState(topic_name=OFFSETS_TOPIC, partition_states=states)
    return leader_and_isr.LeaderAndIsrRequest(controller_epoch=1, topic_states=[topic])


class CellLoad:
    """The connections of one cell, and what each of them says in one turn."""

    def __init__(self, listener: Listener, cell: Cell) -> None:
        self.requests = cell.connections * cell.in_flight
        self._lanes: list[tuple[Callable[[bytes], None], list[bytes]]] = []
        self._sockets: list[Socket] = []
        self._answer_bytes = 0
        for number in range(cell.connections):
            connection, socket = Connection(listener), Socket()
            connection.connection_made(socket)
            lane = _exchanges(cell.kind, number)
            self._answer_bytes += cell.in_flight * len(lane[0].answer)
            self._lanes.append((connection.data_received, _chunks(lane, cell.in_flight)))
            self._sockets.append(socket)
            self._last_answer = lane[0].answer

    async def turns(self, count: int) -> None:
        """Every connection says its part ``count`` times, and gets all answers each time."""
        sockets, expected = self._sockets, self._written() + self._answer_bytes
        for turn in range(count):
            for receive, chunks in self._lanes:
                receive(chunks[turn % RING])
            await until(lambda: self._written() >= expected)  # noqa: B023
            expected += self._answer_bytes
        assert sockets[-1].last[-4:] == self._last_answer[-4:], "a wrong answer"

    def _written(self) -> int:
        return sum([socket.written for socket in self._sockets])


def _exchanges(kind: str, connection: int) -> list[frames.Exchange]:
    partitions = BULK_PARTITIONS if kind in BULK_KINDS else RING
    return exchanges(LoadWindow((), (), kind, 1, 1, 0, partitions=partitions), connection)


def _chunks(lane: Sequence[frames.Exchange], in_flight: int) -> list[bytes]:
    """What arrives in each turn: so many frames in one piece."""
    return [
        b"".join(lane[(first + number) % RING].request for number in range(in_flight))
        for first in range(RING)
    ]


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop turn as often as it takes."""
    while not holds():  # noqa: ASYNC110 - each pass is one turn of the loop
        await asyncio.sleep(0)


async def least(work: Callable[[], Any], requests: int, rounds: int) -> float:
    """Microseconds a request in the best of ``rounds``; ``work`` gives a coroutine or None."""
    best = float("inf")
    for _ in range(rounds):
        began = time.perf_counter_ns()
        waiting = work()
        if waiting is not None:
            await waiting
        best = min(best, time.perf_counter_ns() - began)
    return best / requests / 1000


async def shares(node: NodeParts, kind: str, rounds: int) -> dict[str, float]:
    """The stages of a request one by one, each called as the dispatcher would."""
    api = offset_fetch if kind == "fetch" else offset_commit
    names = ("OffsetFetch", "OffsetCommit")[kind == "commit"]
    read = decoder(getattr(api, f"{names}Request"), VERSION)
    write = encoder(getattr(api, f"{names}Response"), VERSION)
    serve = getattr(node.coordinator, f"offset_{kind}")
    lanes = [_exchanges(kind, number) for number in range(64)]
    asked = [lane[number % RING].request for number, lane in enumerate(lanes)]
    start = asked[0].index(b"load") + len(b"load\0")
    requests = [read(frame, start) for frame in asked]
    caller = Caller("load", "127.0.0.1")
    answers: list[Any] = []

    def handle() -> None:
        answers.clear()
        for request in requests:
            serve(request, VERSION, caller, answers.append)

    async def until_answered() -> None:
        await until(lambda: len(answers) == len(requests))

    async def whole() -> None:
        handle()
        await until_answered()

    found = {"decode": await least(lambda: [read(f, start) for f in asked] and None, 64, rounds)}
    total = await least(whole, 64, rounds)
    checked = float("inf")
    for _ in range(rounds):
        began = time.perf_counter_ns()
        handle()
        checked = min(checked, (time.perf_counter_ns() - began) / 64_000)
        await until_answered()
    found |= {"coordinate": checked, "append": total - checked}
    found["encode"] = await least(lambda: [write(one) for one in answers] and None, 64, rounds)
    return found


async def measure(
    directory: Path, rounds: int, only: str | None, audit: str, *, is_metered: bool
) -> None:
    """Print one line a cell and one line of stages a kind."""
    async with node(directory, audit, is_metered=is_metered) as served:
        for number in range(64):
            await _commit_all(served, number)
        gc_tuning.tune()
        for cell in CELLS:
            load = CellLoad(served.listener, cell)
            repeat = TURNS if cell.connections > 1 else TURNS * 16
            await load.turns(repeat)
            if only == str(cell):
                with cProfile.Profile(timer=time.perf_counter_ns, timeunit=1e-9) as profile:
                    await load.turns(repeat * 10)
                pstats.Stats(profile).sort_stats("tottime").print_stats(30)
            is_bulk = cell.kind in BULK_KINDS
            count = repeat * load.requests * (BULK_PARTITIONS if is_bulk else 1)
            many = rounds // 10 if is_bulk else rounds
            cost = await least(lambda: load.turns(repeat), count, many)  # noqa: B023
            print(f"{cell!s:45}{cost:8.2f} us{' a partition' if is_bulk else ''}")
        for kind in ("fetch", "commit"):
            stages = await shares(served, kind, rounds * 10)
            text = "  ".join(f"{name} {cost:.2f}" for name, cost in stages.items())
            print(f"{kind} at 64 connections: {text}  the rest is connection and dispatch")


async def print_files(directory: Path) -> None:
    """Print the files that one commit passes which is alone on its connection."""
    passed: dict[str, dict[str, None]] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = code.co_filename.removeprefix(ROOT).removeprefix("barnabas/")
        if event == "call" and not path.startswith(("/", "<", ".venv/", "benchmarks/")):
            passed.setdefault(path, {})[code.co_qualname] = None

    async with node(directory) as served:
        await _commit_all(served, 0)
        load = CellLoad(served.listener, Cell("commit", 1, 1))
        await load.turns(4)  # a new connection, and a new segment, have more to do
        sys.setprofile(note)
        await load.turns(1)
        sys.setprofile(None)
    for path, functions in passed.items():
        print(f"{path:50}{', '.join(functions)}")
    print(f"{len(passed)} files")


async def _commit_all(served: NodeParts, number: int) -> None:
    """Have every offset committed that the fetches ask for."""
    connection, socket = Connection(served.listener), Socket()
    connection.connection_made(socket)
    lane = _exchanges("commit", number)
    connection.data_received(b"".join(exchange.request for exchange in lane))
    await until(lambda: socket.written == sum(len(exchange.answer) for exchange in lane))


def main() -> None:
    """Measure in a temporary directory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--profile", metavar="CELL", help='as printed, "fetch, 64 connections"')
    parser.add_argument("--audit", choices=["none", "by-hand", "all"], default="none")
    parser.add_argument("--metered", action="store_true", help="as where metrics are asked for")
    parser.add_argument("--files", action="store_true", help="print the way of one commit")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as directory,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        if options.files:
            runner.run(print_files(Path(directory)))
        else:
            what = options.profile, options.audit
            measuring = measure(Path(directory), options.rounds, *what, is_metered=options.metered)
            runner.run(measuring)


if __name__ == "__main__":
    main()
