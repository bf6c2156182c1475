"""Commits of many partitions in one request, beside Apache Kafka if asked: offsets per second.

    python -m benchmarks.bulk_commits [--against kafka] [--partitions 500] [--libs DIR]

As benchmarks/commit.py: one ZooKeeper, one generator, only one system under load at a time. What
mirroring tools, migrations and large consumers do.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.apache_kafka import KAFKA_VERSION
from benchmarks.commit import (
    MOST_CONNECTIONS,
    CommitPlan,
    Generator,
    measure,
    systems,
    zookeeper_address,
)
from benchmarks.generator import LoadWindow
from benchmarks.report import Cell, Measured, machine

CELLS = tuple(Cell("bulk", *numbers) for numbers in ((1, 1), (16, 1), (4, 8)))


def table(found: list[Measured], names: list[str], partitions: int) -> str:
    """Markdown: offsets in thousands per CPU second of the broker, by the clock in brackets."""
    head = ["cell", *(f"{name}, k offsets per CPU second (per second)" for name in names)]
    head += ["ratio"] if len(names) > 1 else []
    rows = [head, ["---"] * len(head)]
    for result in found:
        row = [str(result.cell)]
        for name in names:
            cpu, clock = result.per_cpu_second(name), result.per_second(name)
            row.append(f"{cpu * partitions / 1e3:.0f} ({clock * partitions / 1e3:.0f})")
        if len(names) > 1:
            row.append(f"{result.ratio(*names):.2f} ({_by_the_clock(result, *names):.2f})")
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _by_the_clock(measured: Measured, server: str, rival: str) -> float:
    pairs = zip(measured.rounds[server], measured.rounds[rival], strict=True)
    return median(ours.per_second / theirs.per_second for ours, theirs in pairs)


def main() -> None:
    """Measure what the command line names and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka beside it")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--only", choices=("barnabas", "kafka"), help="leave the other one out")
    parser.add_argument("--partitions", type=int, default=500, help="in each request")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one window")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds of load beforehand")
    options = parser.parse_args()
    options.replication = 1
    plan = CommitPlan(options.rounds, options.seconds, options.warm_up, CELLS)
    are_pinned = (os.cpu_count() or 1) >= 2
    model = LoadWindow([], [], "bulk", MOST_CONNECTIONS, 1, 0, partitions=options.partitions)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        address = stack.enter_context(zookeeper_address(None, directory / "zookeeper"))
        running = []
        for system in systems(options, directory, address):
            running.append(stack.enter_context(system))
            if are_pinned:
                system.pin({0})
        generator = stack.enter_context(Generator({1} if are_pinned else None, model))
        found = measure(generator, running, plan)
        print(f"machine: {machine()}; Apache Kafka {KAFKA_VERSION}")
        print(
            f"{options.partitions} partitions a request; {plan.rounds} rounds of {plan.seconds} s"
        )
        print(table(found, [system.name for system in running], options.partitions))


if __name__ == "__main__":
    main()
