"""Transactions per CPU second of the broker, latency of a copy, gap after a kill of a coordinator.

    python -m benchmarks.transactions [--against kafka] [--quick] [--part rates copy gap]

Both systems stand on one ZooKeeper, each in a chroot of its own; one generator drives both with the
same bytes, only one of them at a time, in interleaved rounds; medians are printed. The gap has
three nodes of each kind.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import failover
from benchmarks.apache_kafka import KAFKA_VERSION
from benchmarks.commit import systems, zookeeper_address
from benchmarks.eager_transactor import EagerTransactor
from benchmarks.generator_process import GeneratorProcess
from benchmarks.heartbeats import percentile
from benchmarks.nodes import Nodes
from benchmarks.report import machine
from benchmarks.server_process import ServerFailed
from benchmarks.transaction_copy import CopyJob, CopyResult
from benchmarks.transaction_load import TransactionResult, TransactionWindow

PARTS: Final = ("rates", "copy", "gap")
RATES_OF_COPY: Final = (50, 500)
"""Records a second that go through a copy."""
TRANSACTIONS_TOPIC: Final = "__transaction_state"
KILL: Final = next(fault for fault in failover.FAULTS if fault.name == "kill")
COORDINATION: Final = failover.Coordination(
    TRANSACTIONS_TOPIC,
    lambda addresses, name, partition: EagerTransactor(addresses, name, failover.TOPIC, partition),
)


@dataclass(frozen=True, slots=True)
class TransactionCell:
    """How many partitions a transaction has, and how many producers there are."""

    partitions: int
    producers: int


CELLS: Final = tuple(
    TransactionCell(partitions, producers)
    for partitions in (1, 10, 100)
    for producers in (1, 10, 50)
)
QUICK_CELLS: Final = tuple(
    TransactionCell(partitions, producers) for partitions in (1, 100) for producers in (1, 50)
)


@dataclass(slots=True)
class Cells:
    """All rounds of every cell, by system."""

    rounds: dict[TransactionCell, dict[str, list[TransactionResult]]] = field(default_factory=dict)

    def add(self, cell: TransactionCell, system: str, result: TransactionResult) -> None:
        """Count one more round."""
        self.rounds.setdefault(cell, {}).setdefault(system, []).append(result)

    def table(self, names: Sequence[str]) -> str:
        """Markdown: transactions per CPU second of the broker, by the clock in brackets."""
        head = ["partitions", "producers"]
        head += [f"{name}, per CPU second (per second)" for name in names]
        head += ["ratio"] if len(names) > 1 else []
        rows = [head, ["---"] * len(head)]
        for cell, found in self.rounds.items():
            row = [str(cell.partitions), str(cell.producers)]
            for name in names:
                cpu = median(map(per_cpu_second, found[name]))
                clock = median(one.committed / one.wall_seconds for one in found[name])
                row.append(f"{cpu:.0f} ({clock:.0f})")
            if len(names) > 1:
                pairs = zip(*(map(per_cpu_second, found[name]) for name in names), strict=True)
                row.append(f"{median(ours / theirs for ours, theirs in pairs):.2f}")
            rows.append(row)
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)

    def share_of_generator(self) -> float:
        """Its CPU time in the busiest window, of the clock's: at 1 it would be the limit."""
        return max(
            one.generator_seconds / one.wall_seconds
            for found in self.rounds.values()
            for results in found.values()
            for one in results
        )

    def refusals(self, names: Sequence[str]) -> str:
        """How often a transaction was told to wait for the last one's markers, on average."""
        shares = []
        for name in names:
            results = [one for found in self.rounds.values() for one in found[name]]
            count = sum(one.refused for one in results) / sum(one.committed for one in results)
            shares.append(f"{name} {count:.2f}")
        return ", ".join(shares)

    def document(self) -> list[dict[str, Any]]:
        """The same as plain data, every round included."""
        return [
            {
                **asdict(cell),
                **{name: [asdict(one) for one in results] for name, results in found.items()},
            }
            for cell, found in self.rounds.items()
        ]


def per_cpu_second(result: TransactionResult) -> float:
    """Committed transactions per second of the broker's CPU."""
    return result.committed / result.cpu_seconds


class TransactionGenerator(GeneratorProcess):
    """The process that drives one system at a time."""

    def __init__(self, cores: set[int] | None) -> None:
        super().__init__("benchmarks.transaction_load", cores)

    def prepare(self, system: Nodes) -> None:
        """Create topics and the log of transactions."""
        self.order({"do": "prepare", "port": system.port})

    def load(self, system: Nodes, cell: TransactionCell, seconds: float) -> TransactionResult:
        """One window of one cell; raises ServerFailed at the first wrong answer."""
        job = TransactionWindow(system.port, system.pids, cell.producers, cell.partitions, seconds)
        result = TransactionResult(**self.order({"do": "run", "job": asdict(job)}))
        if result.wrong or not result.committed or not result.cpu_seconds:
            raise ServerFailed(f"{system.name}, {cell}: {result.wrong or 'no transaction at all'}")
        return result

    def copy(self, system: Nodes, rate: float, seconds: float) -> CopyResult:
        """One copy."""
        job = CopyJob(port=system.port, rate=rate, seconds=seconds)
        return CopyResult(**self.order({"do": "copy", "job": asdict(job)}))


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """How long and how often."""

    cells: Sequence[TransactionCell]
    rounds: int
    seconds: float
    warm_up: float
    copy_seconds: float
    kills: int


def measure_rates(
    generator: TransactionGenerator, running: Sequence[Nodes], plan: TransactionPlan
) -> Cells:
    """Visit every cell in every round, the systems in turn."""
    found = Cells()
    for number in range(plan.rounds):
        for cell in plan.cells:
            for system in running if number % 2 == 0 else reversed(running):
                found.add(cell, system.name, generator.load(system, cell, plan.seconds))
        print(f"round {number + 1} of {plan.rounds} done", file=sys.stderr)
    return found


def warm_up(
    generator: TransactionGenerator, running: Sequence[Nodes], plan: TransactionPlan
) -> None:
    """Have every cell's code compiled."""
    for system in running:
        generator.prepare(system)
        for cell in plan.cells:
            generator.load(system, cell, plan.warm_up / len(plan.cells))


Latencies = dict[int, dict[str, list[float]]]
"""By rate and system; milliseconds of every record."""


def measure_copies(
    generator: TransactionGenerator, running: Sequence[Nodes], plan: TransactionPlan
) -> Latencies:
    """Each rate on each system, after a copy that does not count."""
    found: Latencies = {}
    for system in running:
        generator.copy(system, RATES_OF_COPY[-1], plan.copy_seconds / 2)
    for rate in RATES_OF_COPY:
        for number in range(2):
            for system in running if number == 0 else reversed(running):
                times = found.setdefault(rate, {}).setdefault(system.name, [])
                times += generator.copy(system, rate, plan.copy_seconds / 2).latencies_ms
    return found


def copies_table(latencies: Latencies) -> str:
    """Markdown, one row a rate and system."""
    rows = ["| records a second | system | p50, ms | p99, ms | worst, ms |"]
    rows.append("| --- | --- | --- | --- | --- |")
    for rate, by_system in latencies.items():
        for name, times in by_system.items():
            p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
            rows.append(f"| {rate} | {name} | {p50:.1f} | {p99:.1f} | {max(times):.1f} |")
    return "\n".join(rows)


def measure_gaps(
    plan: TransactionPlan, *, against_kafka: bool, libs: Path | None
) -> list[failover.OutageRow]:
    """How long producers are without a commit when their coordinator is killed."""
    starts: list[Callable[[], AbstractContextManager[failover.Servers]]]
    starts = [lambda: failover.barnabas("Barnabas", {})]
    if against_kafka:
        starts.append(lambda: failover.kafka(libs))
    rows: list[failover.OutageRow] = []
    for start in starts:
        with start() as servers:
            rows += failover.measure(servers, [KILL], plan.kills, 1, COORDINATION)
    return rows


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka beside it")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--only", choices=("barnabas", "kafka"), help="leave the other one out")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=None)
    parser.add_argument("--quick", action="store_true", help="a minute: four cells, no gap")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one window")
    parser.add_argument("--warm-up", type=float, default=45.0, help="seconds of load beforehand")
    parser.add_argument("--copy-seconds", type=float, default=20.0, help="for each rate")
    parser.add_argument("--kills", type=int, default=5, help="of each system's coordinators")
    parser.add_argument("--no-pin", action="store_true", help="let the scheduler choose cores")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    options = parser.parse_args()
    options.replication = 1
    return options


def plan_of(options: argparse.Namespace) -> TransactionPlan:
    """What the command line asks for."""
    if options.quick:
        return TransactionPlan(
            QUICK_CELLS, rounds=1, seconds=1.5, warm_up=8.0, copy_seconds=3.0, kills=1
        )
    return TransactionPlan(
        CELLS,
        options.rounds,
        options.seconds,
        options.warm_up,
        options.copy_seconds,
        options.kills,
    )


def on_one_node(
    options: argparse.Namespace, plan: TransactionPlan, parts: Sequence[str]
) -> dict[str, Any]:
    """Rates and copies; prints their tables."""
    are_pinned = not options.no_pin and (os.cpu_count() or 1) >= 2
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        address = stack.enter_context(zookeeper_address(None, directory / "zookeeper"))
        running = []
        for system in systems(options, directory, address):
            running.append(stack.enter_context(system))
            if are_pinned:
                system.pin({0})
        generator = stack.enter_context(TransactionGenerator({1} if are_pinned else None))
        warm_up(generator, running, plan)
        names = [system.name for system in running]
        print(f"pinned: {'brokers core 0, generator core 1' if are_pinned else 'no'}")
        if "rates" in parts:
            cells = measure_rates(generator, running, plan)
            found["cells"] = cells.document()
            print(cells.table(names))
            print(f"told to wait (51), per transaction: {cells.refusals(names)}")
            print(f"generator busy for at most {cells.share_of_generator():.0%} of a window")
        if "copy" in parts:
            found["copies"] = measure_copies(generator, running, plan)
            print(copies_table(found["copies"]), flush=True)
    return found


def main() -> None:
    """Measure what the command line names and print the tables."""
    options = arguments()
    plan = plan_of(options)
    parts = options.part or (PARTS[:2] if options.quick else PARTS)
    print(f"machine: {machine()}; Apache Kafka {KAFKA_VERSION}")
    print(f"plan: {plan.rounds} rounds of {plan.seconds:g} s, {plan.warm_up:g} s of warm-up")
    found: dict[str, Any] = {"machine": machine()}
    if {"rates", "copy"} & set(parts):
        found |= on_one_node(options, plan, parts)
    if "gap" in parts:
        against_kafka = options.against == "kafka"
        rows = measure_gaps(plan, against_kafka=against_kafka, libs=options.libs)
        found["gaps"] = [asdict(row) for row in rows]
        print(failover.HEAD, *rows, sep="\n")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
