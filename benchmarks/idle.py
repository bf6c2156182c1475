"""What a cluster of three nodes costs that nobody asks for anything: shares of a core.

    python -m benchmarks.idle [--against kafka] [--seconds 30] [--profile DIR]

An offsets topic with three replicas is made first, as every cluster in use has one. Then the CPU of
each node is read at the ends of a window, and how often its threads went to sleep. With
``--profile`` py-spy (which is not among our dependencies) says where the time of each node goes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.apache_kafka import KAFKA_VERSION
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from benchmarks.commit import Generator, systems, zookeeper_address
from benchmarks.nodes import Nodes
from benchmarks.report import machine
from benchmarks.server_process import ServerFailed, cpu_seconds

NODES = 3
SETTLED_S = 60.0
"""How long replicas may take to be in sync after the topic was made."""
AS_DOCUMENTED = {"cluster.secret": "of the benchmark", "zookeeper.session.timeout.ms": "18000"}
"""Beacons between nodes, and the session that is the default."""
REST_S = 10.0
"""What follows a start and a topic is over by then: elections, snapshots, first checks."""


@dataclass(frozen=True, slots=True)
class IdleNode:
    """One node in one window."""

    is_controller: bool
    core: float
    """Its share of one core."""
    sleeps: float
    """How often a second its threads went to sleep, and so were woken."""


def measure(system: Nodes, address: str, seconds: float, profile: Path | None) -> list[IdleNode]:
    """The nodes of one system, the controller first."""
    with ClusterView(address) as view:
        _settle(view)
        controller = view.controller()
    time.sleep(REST_S)
    before = [(cpu_seconds(pid), _sleeps(pid)) for pid in system.pids]
    began = time.monotonic()
    time.sleep(seconds)
    after = [(cpu_seconds(pid), _sleeps(pid)) for pid in system.pids]
    passed = time.monotonic() - began
    if profile is not None:
        _profile(system, profile, seconds)
    found = [
        IdleNode(number == controller, (end[0] - start[0]) / passed, (end[1] - start[1]) / passed)
        for number, (start, end) in enumerate(zip(before, after, strict=True), 1)
    ]
    return sorted(found, key=lambda node: not node.is_controller)


def _settle(view: ClusterView) -> None:
    deadline = time.monotonic() + SETTLED_S
    while wanting := view.wants([OFFSETS_TOPIC], preferred=False):
        if time.monotonic() > deadline:
            raise ServerFailed(f"not at rest: {wanting[:3]}")
        time.sleep(0.2)


def _sleeps(pid: int) -> int:
    """Voluntary context switches of all threads."""
    return sum(
        int(line.split()[1])
        for task in Path(f"/proc/{pid}/task").iterdir()
        for line in (task / "status").read_text().splitlines()
        if line.startswith("voluntary_ctxt_switches")
    )


def _profile(system: Nodes, directory: Path, seconds: float) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for number, pid in enumerate(system.pids, 1):
        file = directory / f"{system.name.lower()}-{number}.txt"
        command = ["py-spy", "record", "--rate", "500", "--duration", f"{seconds:g}"]
        command += ["--format", "raw", "--output", str(file), "--pid", str(pid)]
        subprocess.run(command, check=True, capture_output=True)


def table(found: Sequence[tuple[str, IdleNode]]) -> str:
    """Markdown: percents of a core."""
    rows = [["node", "of a core, %", "wake-ups a second"], ["---"] * 3]
    for name, node in found:
        role = "controller" if node.is_controller else "another node"
        rows.append([f"{name}, {role}", f"{node.core * 100:.2f}", f"{node.sleeps:.0f}"])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    """Measure what the command line names and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka beside it")
    parser.add_argument("--only", choices=("barnabas", "kafka"), help="leave the other one out")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the window")
    parser.add_argument("--profile", type=Path, help="a profile of each node in this folder")
    options = parser.parse_args()
    options.replication = NODES
    found: list[tuple[str, IdleNode]] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        address = stack.enter_context(zookeeper_address(None, directory / "zookeeper"))
        for system in systems(options, directory, address, AS_DOCUMENTED):
            with system, Generator(None) as generator:
                generator.prepare(system)
                # commit.py names the chroots of both systems so
                place = f"{address}/{system.name.lower()}-{os.getpid()}"
                nodes = measure(system, place, options.seconds, options.profile)
                found += [(system.name, node) for node in nodes]
    print(f"machine: {machine()}; Apache Kafka {KAFKA_VERSION}")
    print(f"three nodes, a window of {options.seconds:g} s")
    print(table(found))


if __name__ == "__main__":
    main()
