"""Commits and fetches of offsets per CPU second of the broker, beside Apache Kafka if asked.

    python -m benchmarks.commit [--against kafka] [--replication 3] [--libs DIR] [--json FILE]

Both systems stand on one ZooKeeper, each in a chroot of its own; one generator drives both with
the same bytes, only one of them at a time, in interleaved rounds; medians are printed. With
``--replication 3`` each has three nodes, every commit is on all of them, and the CPU of all counts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from benchmarks.apache_kafka import KAFKA_VERSION, kafka_jars, kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.generator import LoadWindow, WindowResult
from benchmarks.generator_process import GeneratorProcess
from benchmarks.nodes import Nodes
from benchmarks.report import Cell, Measured, Rate, document, machine, table
from benchmarks.server_process import ServerFailed, ServerProcess

CELLS = tuple(
    Cell(kind, connections, in_flight)
    for kind in ("commit", "fetch")
    for connections, in_flight in ((1, 1), (64, 1), (8, 64))
)
MOST_CONNECTIONS = 64
MODEL = LoadWindow([], [], "commit", MOST_CONNECTIONS, 1, 0)


class Generator(GeneratorProcess):
    """The load generator's process, on a core of its own where there are two.

    ``model`` says what else than a cell a job is made of.
    """

    def __init__(self, cores: set[int] | None, model: LoadWindow = MODEL) -> None:
        super().__init__("benchmarks.generator", cores)
        self._model = model
        self._ports: dict[str, list[int]] = {}

    def prepare(self, system: Nodes) -> None:
        """Create what every cell needs on ``system``, and note where its coordinators are."""
        job = replace(
            self._model, ports=system.ports, pids=system.pids, connections=MOST_CONNECTIONS
        )
        self._ports[system.name] = self.order({"do": "prepare", "job": asdict(job)})["ports"]

    def load(self, system: Nodes, cell: Cell, seconds: float) -> Rate:
        """One window of one cell; raises ServerFailed at the first wrong answer."""
        ports = self._ports[system.name]
        job = replace(
            self._model,
            ports=ports,
            pids=system.pids,
            kind=cell.kind,
            connections=cell.connections,
            in_flight=cell.in_flight,
            seconds=seconds,
        )
        result = WindowResult(**self.order({"do": "run", "job": asdict(job)}))
        if result.wrong or not result.answers or not result.cpu_seconds:
            raise ServerFailed(f"{system.name}, {cell}: {result.wrong or 'no answer at all'}")
        return Rate(result.answers / result.cpu_seconds, result.answers / result.wall_seconds)


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """How long and how often."""

    rounds: int
    seconds: float
    warm_up: float
    cells: Sequence[Cell]


def measure(generator: Generator, systems: Sequence[Nodes], plan: CommitPlan) -> list[Measured]:
    """Warm all up, then visit every cell in every round, the systems in turn."""
    for system in systems:
        generator.prepare(system)
        for cell in plan.cells:
            generator.load(system, cell, max(1.0, plan.warm_up / len(plan.cells)))
    found = [Measured(cell) for cell in plan.cells]
    for number in range(plan.rounds):
        for measured in found:
            for system in systems if number % 2 == 0 else reversed(systems):
                measured.add(system.name, generator.load(system, measured.cell, plan.seconds))
        print(f"round {number + 1} of {plan.rounds} done", file=sys.stderr)
    return found


def systems(
    options: argparse.Namespace,
    directory: Path,
    zookeeper: str,
    settings_of_nodes: Mapping[str, str] | None = None,
    settings_of_both: Mapping[str, str] | None = None,
) -> Iterator[Nodes]:
    """What the command line names, not yet started; ``settings_of_nodes``: Barnabas alone."""
    both = settings_of_both or {}
    wanted = {"barnabas", options.against} if options.only is None else {options.only}
    if "barnabas" in wanted:
        yield Nodes(
            "Barnabas",
            partial(_barnabas, {**both, **(settings_of_nodes or {})}),
            options.replication,
            directory / "barnabas",
            f"{zookeeper}/barnabas-{os.getpid()}",
        )
    if "kafka" in wanted:
        yield Nodes(
            "Kafka",
            partial(_kafka, kafka_jars(options.libs), both),
            options.replication,
            directory / "kafka",
            f"{zookeeper}/kafka-{os.getpid()}",
        )


def _barnabas(
    more: Mapping[str, str],
    directory: Path,
    zookeeper: str,
    number: int,
    settings: Mapping[str, str],
) -> ServerProcess:
    return barnabas_node(directory, zookeeper, node_id=number, settings={**settings, **more})


def _kafka(
    jars: Path,
    more: Mapping[str, str],
    directory: Path,
    zookeeper: str,
    number: int,
    settings: Mapping[str, str],
) -> ServerProcess:
    return kafka_node(jars, directory, zookeeper, node_id=number, settings={**settings, **more})


@contextmanager
def zookeeper_address(given: str | None, directory: Path, *, heap_mb: int = 128) -> Iterator[str]:
    """The ZooKeeper that was named, or else one of our own for as long as it takes."""
    if given is not None:
        yield given
        return
    with EmbeddedZooKeeper(directory, heap_mb=heap_mb) as zookeeper:
        yield zookeeper.hosts


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka beside it")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--only", choices=("barnabas", "kafka"), help="leave the other one out")
    parser.add_argument(
        "--replication", type=int, choices=(1, 3), default=1, help="nodes, and copies of a commit"
    )
    parser.add_argument("--kind", choices=("commit", "fetch"), help="leave the other kind out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one window")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds of load beforehand")
    parser.add_argument("--zookeeper", help="HOST:PORT of one that runs already")
    parser.add_argument("--no-pin", action="store_true", help="let the scheduler choose cores")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    return parser.parse_args()


def main() -> None:
    """Measure what the command line names and print the table."""
    options = arguments()
    cells = [cell for cell in CELLS if options.kind in (None, cell.kind)]
    plan = CommitPlan(options.rounds, options.seconds, options.warm_up, cells)
    are_pinned = not options.no_pin and (os.cpu_count() or 1) >= 2
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        address = stack.enter_context(zookeeper_address(options.zookeeper, directory / "zookeeper"))
        running = []
        for system in systems(options, directory, address):
            running.append(stack.enter_context(system))
            if are_pinned:
                system.pin({0})
        generator = stack.enter_context(Generator({1} if are_pinned else None))
        found = measure(generator, running, plan)
        names = [system.name for system in running]
        print(f"machine: {machine()}")
        print(
            f"plan: {plan.rounds} rounds of {plan.seconds:g} s a cell after {plan.warm_up:g} s of "
            f"warm-up; pinned: {'brokers core 0, generator core 1' if are_pinned else 'no'}; "
            f"Apache Kafka {KAFKA_VERSION}; nodes and replicas: {options.replication}"
        )
        print(table(found, names))
    if options.json:
        options.json.write_text(
            json.dumps(
                {
                    "machine": machine(),
                    "replication": options.replication,
                    "plan": asdict(plan),
                    "cells": document(found, names),
                },
                indent=2,
            )
        )


if __name__ == "__main__":
    main()
