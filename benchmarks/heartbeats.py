"""How long a heartbeat takes where many groups are, against where few are.

    python -m benchmarks.heartbeats [--groups 10000] [--few 100] [--against kafka] [--libs DIR]

Two nodes of each system, one with many groups of three members, one with few. The same number of
heartbeats a second goes to either, in turn, from one generator on a core of its own; each member
in its turn. Latencies are the client's, so only their ratio means something.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import uvloop

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.console.development.ports import LOOPBACK
from benchmarks import frames, group_frames
from benchmarks.apache_kafka import KAFKA_VERSION, kafka_jars, kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.commit import zookeeper_address
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess, cpu_seconds, pin

MEMBERS = 3
LANES = 24
"""Groups that form at the same time."""
DELAY_MS = 100
"""How long a group waits for its members: they join on connections of their own."""
SESSION_MS = 1_800_000
SETTINGS = {
    "group.initial.rebalance.delay.ms": str(DELAY_MS),
    "offsets.topic.num.partitions": "50",
}


class BrokerConnection:
    """One connection with one request under way."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> BrokerConnection:
        """Connect."""
        return cls(*await asyncio.open_connection(LOOPBACK, port))

    async def call(self, frame: bytes) -> bytes:
        """The answer, without its length."""
        self._writer.write(frame)
        size = int.from_bytes(await self._reader.readexactly(4))
        return await self._reader.readexactly(size)

    def close(self) -> None:
        """At once."""
        self._writer.transport.abort()


async def form(port: int, groups: int) -> list[bytes]:
    """Make groups of three members each; the heartbeats of all members, group by group."""
    connection = await BrokerConnection.open(port)
    asked = frames.find_coordinator("group-0")
    while frames.find_coordinator_error(await connection.call(asked)):  # noqa: ASYNC110 - a poll
        await asyncio.sleep(0.1)
    connection.close()
    numbers = iter(range(groups))
    made = await asyncio.gather(*(_lane(port, numbers) for _ in range(LANES)))
    return [beat for beats in made for beat in beats]


async def _lane(port: int, numbers: Iterator[int]) -> list[bytes]:
    connections = [await BrokerConnection.open(port) for _ in range(MEMBERS)]
    beats: list[bytes] = []
    for number in numbers:
        beats += await _group(connections, f"group-{number}")
    for connection in connections:
        connection.close()
    return beats


async def _group(connections: list[BrokerConnection], group: str) -> list[bytes]:
    """Try until all three are in one generation: a coordinator may still be loading."""
    for attempt in itertools.count():
        name = f"{group}-{attempt}"
        join = group_frames.join(name, SESSION_MS, 60_000)
        told = await asyncio.gather(*(connection.call(join) for connection in connections))
        members = [group_frames.joined(answer) for answer in told]
        if all(code == 0 and generation == 1 for code, generation, *_ in members):
            syncs = [group_frames.sync(name, 1, own, all_) for _, _, own, all_ in members]
            answers = await asyncio.gather(
                *(
                    connection.call(frame)
                    for connection, frame in zip(connections, syncs, strict=True)
                )
            )
            if not any(map(group_frames.code, answers)):
                return [group_frames.heartbeat(name, 1, own) for _, _, own, _ in members]
        await asyncio.sleep(0.05)
    raise AssertionError("unreachable")


async def beat(port: int, beats: Sequence[bytes], rate: int, seconds: float) -> list[float]:
    """Heartbeats at ``rate`` a second over eight connections; the latency of each, in seconds."""
    turns = itertools.cycle(beats)
    latencies: list[float] = []
    lanes = 8
    pause, ends = lanes / rate, time.perf_counter() + seconds

    async def lane(number: int) -> None:
        connection = await BrokerConnection.open(port)
        due = time.perf_counter() + pause * number / lanes
        while due < ends:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            began = time.perf_counter()
            code = group_frames.code(await connection.call(next(turns)))
            latencies.append(time.perf_counter() - began)
            assert code == 0, f"a heartbeat was answered {code}"
            due = max(due + pause, time.perf_counter() - pause)
        connection.close()

    await asyncio.gather(*map(lane, range(lanes)))
    return latencies


def percentile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def measure(
    name: str, nodes: Sequence[ServerProcess], sizes: Sequence[int], options: argparse.Namespace
) -> None:
    """Form the groups, then beat in turn; prints one row for each size and the ratio."""
    beats = []
    for node, size in zip(nodes, sizes, strict=True):
        began = time.perf_counter()
        beats.append(await form(node.port, size))
        print(f"{name}: {size} groups in {time.perf_counter() - began:.1f} s", file=sys.stderr)
        await beat(node.port, beats[-1], options.rate, options.warm_up)
    found: dict[int, list[tuple[float, float, float]]] = {size: [] for size in sizes}
    for _ in range(options.rounds):
        for node, size, frames_ in zip(nodes, sizes, beats, strict=True):
            busy = cpu_seconds(node.pid)
            latencies = await beat(node.port, frames_, options.rate, options.seconds)
            busy = (cpu_seconds(node.pid) - busy) / len(latencies)
            found[size].append((percentile(latencies, 0.5), percentile(latencies, 0.99), busy))
    for size in sizes:
        middle, late, busy = (median(figures[n] for figures in found[size]) for n in range(3))
        print(
            f"| {name}, {size} groups | {middle * 1e6:.0f} | {late * 1e6:.0f} | {busy * 1e6:.0f} |"
        )
    few, many = (found[size] for size in sizes)
    ratios = [
        median(more[n] / less[n] for less, more in zip(few, many, strict=True)) for n in range(3)
    ]
    print(f"| {name}, ratio | {ratios[0]:.2f} | {ratios[1]:.2f} | {ratios[2]:.2f} |", flush=True)


def main() -> None:
    """Measure what the command line names and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka beside it")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--rate", type=int, default=2_000, help="heartbeats a second")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one window")
    parser.add_argument("--warm-up", type=float, default=10.0)
    options = parser.parse_args()
    sizes = (options.few, options.groups)
    systems = ["Barnabas", *(["Kafka"] if options.against else [])]
    if (os.cpu_count() or 1) >= 2:
        os.sched_setaffinity(0, {1})
    print(f"machine: {machine()}; Apache Kafka {KAFKA_VERSION}; {options.rate} heartbeats a second")
    print("| cell | median, us | p99, us | CPU of the node, us each |\n| --- | --- | --- | --- |")
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory,
        zookeeper_address(None, Path(directory) / "zookeeper") as address,
    ):
        for name in systems:
            with ExitStack() as stack:
                nodes = []
                for size in sizes:
                    place = Path(directory) / f"{name}-{size}"
                    chroot = f"{address}/{name.lower()}-{size}"
                    node = (
                        barnabas_node(place, chroot, settings=SETTINGS)
                        if name == "Barnabas"
                        else kafka_node(kafka_jars(options.libs), place, chroot, settings=SETTINGS)
                    )
                    nodes.append(stack.enter_context(node))
                    if (os.cpu_count() or 1) >= 2:
                        pin(node.pid, {0})
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(measure(name, nodes, sizes, options))


if __name__ == "__main__":
    main()
