"""What more cores bring: throughput of one to as many nodes as there are cores, of one on two.

    python -m benchmarks.cores [--seconds 3] [--rounds 3] [--most N]

A node is one event loop: it takes one core and little more, so a machine is filled by nodes. Of
each number of nodes the commits a second by the clock and by CPU second of all nodes are told; each
node is bound to a core of its own, and has a generator, on other cores where there are enough.
Offsets are on one replica: what replication costs is told by commit.py. Then one node is bound to
one core and to two, and of its CPU the share is told that its loop's thread takes: all else could
run beside it.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.barnabas_node import barnabas_node
from benchmarks.commit import Generator, zookeeper_address
from benchmarks.generator import LoadWindow
from benchmarks.nodes import Make, Nodes
from benchmarks.report import Cell, Rate, machine
from benchmarks.server_process import ServerProcess, cpu_seconds, pin

CONNECTIONS, IN_FLIGHT = 16, 64
CELL = Cell("commit", CONNECTIONS, IN_FLIGHT)
ONE_AT_A_TIME = Cell("commit", 64, 1)
MODEL = LoadWindow([], [], "commit", 64, 1, 0)
UNREPLICATED = {
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "min.insync.replicas": "1",
}


@dataclass(frozen=True, slots=True)
class Scaled:
    """So many nodes; rates of all of them together, a second."""

    nodes: int
    per_second: float
    per_cpu_second: float
    cores_used: float
    """By the nodes alone."""


def _make(directory: Path, zookeeper: str, number: int, settings: object) -> ServerProcess:
    del settings  # three replicas, where there are several nodes
    return barnabas_node(directory, zookeeper, node_id=number, settings=UNREPLICATED)


def scaled(nodes: int, place: Path, zookeeper: str, options: argparse.Namespace) -> Scaled:
    """The medians of the rounds; generators begin and end together."""
    cores = sorted(os.sched_getaffinity(0))
    make: Make = _make
    rounds: list[list[Rate]] = []
    with ExitStack() as stack:
        system = stack.enter_context(
            Nodes("Barnabas", make, nodes, place / f"of-{nodes}", f"{zookeeper}/of-{nodes}")
        )
        for pid, core in zip(system.pids, cores, strict=False):
            pin(pid, {core})
        free = set(cores[nodes:]) or set(cores)
        generators = [stack.enter_context(Generator(free, MODEL)) for _ in range(nodes)]
        for generator in generators:
            generator.prepare(system)
        pool = stack.enter_context(ThreadPoolExecutor(nodes))
        for number in range(options.rounds + 1):
            loads = [
                pool.submit(generator.load, system, CELL, options.seconds)
                for generator in generators
            ]
            found = [load.result() for load in loads]
            if number:  # the first warms them up
                rounds.append(found)
    per_second = [sum(rate.per_second for rate in found) for found in rounds]
    # Each generator counts the CPU of all nodes, and its own answers alone.
    per_cpu = [sum(rate.per_cpu_second for rate in found) for found in rounds]
    used = [second / cpu for second, cpu in zip(per_second, per_cpu, strict=True)]
    return Scaled(nodes, median(per_second), median(per_cpu), median(used))


def second_core(place: Path, zookeeper: str, options: argparse.Namespace) -> list[list[str]]:
    """One node on one core and on two: rows of a table."""
    cores = sorted(os.sched_getaffinity(0))
    rows: list[list[str]] = []
    make: Make = _make
    with ExitStack() as stack:
        system = stack.enter_context(
            Nodes("Barnabas", make, 1, place / "second", f"{zookeeper}/second")
        )
        generator = stack.enter_context(Generator(set(cores[-1:]), MODEL))
        generator.prepare(system)
        for cell in (ONE_AT_A_TIME, CELL):
            told = [str(cell)]
            for bound in (set(cores[:1]), set(cores[:2])):
                system.pin(bound)
                generator.load(system, cell, 1.0)
                rates = [
                    generator.load(system, cell, options.seconds) for _ in range(options.rounds)
                ]
                second = median(rate.per_second for rate in rates)
                cpu = median(rate.per_cpu_second for rate in rates)
                told += [f"{second / 1e3:.1f}", f"{second / cpu:.2f}"]
            before = _loop_and_all(system.pids[0])
            generator.load(system, cell, options.seconds)
            loop, everything = (
                after - earlier
                for after, earlier in zip(_loop_and_all(system.pids[0]), before, strict=True)
            )
            rows.append([*told, f"{100 * loop / everything:.0f} %"])
    return rows


def _loop_and_all(pid: int) -> tuple[float, float]:
    """CPU seconds of the thread of the loop, which is the first one, and of all threads."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])  # utime and stime, behind the name and the state
    return ticks / os.sysconf("SC_CLK_TCK"), cpu_seconds(pid)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Markdown; the first row is the head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one window")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, help="nodes; by default as many as there are cores")
    options = parser.parse_args()
    most = options.most or len(os.sched_getaffinity(0))
    counts = sorted({count for count in (1, 2, 3, 4, 6, 8, 12, 16) if count < most} | {most})
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory,
        zookeeper_address(None, Path(directory) / "zookeeper") as address,
    ):
        found = [scaled(count, Path(directory), address, options) for count in counts]
        second = second_core(Path(directory), address, options)
    print(f"machine: {machine()}; {CELL}")
    head = ["nodes", "k commits/s", "times one node", "k per CPU second", "cores that they used"]
    rows = [
        [
            str(one.nodes),
            f"{one.per_second / 1e3:.1f}",
            f"{one.per_second / found[0].per_second:.2f}",
            f"{one.per_cpu_second / 1e3:.1f}",
            f"{one.cores_used:.2f}",
        ]
        for one in found
    ]
    print(table([head, *rows]), "\n")
    head = ["one node", "on one core, k/s", "cores used", "on two, k/s", "cores used"]
    print(table([[*head, "its loop's share"], *second]))


if __name__ == "__main__":
    main()
