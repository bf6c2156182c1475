"""Megabytes produced and fetched per CPU second of the broker, beside Apache Kafka if asked.

    python -m benchmarks.produce_fetch [--against kafka] [--libs DIR] [--json FILE]

confluent-kafka drives both servers, one at a time, in alternating order; every round has a topic
of its own, of one partition, that is filled once and read several times; medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Self

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.apache_kafka import KAFKA_VERSION, kafka_jars, kafka_node
from benchmarks.barnabas_node import ROOT, barnabas_node
from benchmarks.bulk_client import BulkCost, BulkTask
from benchmarks.commit import zookeeper_address
from benchmarks.report import machine
from benchmarks.server_process import ServerFailed, ServerProcess, pin

SIZES = (1000, 100)
FETCHES = 3
"""How often each round reads what it produced."""
SETTINGS = {"log.segment.delete.delay.ms": "100"}
"""Both servers delete a topic at once, so that every round finds the same memory free."""
REST_S = 1.0
"""How long a server has for the deletion, before anybody is measured again."""


class BulkClient:
    """The process that produces and fetches, on a core of its own where there are two."""

    def __init__(self, cores: set[int] | None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.bulk_client"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._topics = 0
        if cores:
            pin(self._process.pid, cores)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate()

    def round(
        self,
        server: ServerProcess,
        size: int,
        megabytes: int,
        bootstrap: str = "",
        settings: Mapping[str, str] | None = None,
        *,
        is_varied: bool = False,
    ) -> dict[str, BulkCost]:
        """Fill a fresh topic and read it; raises ServerFailed when anything is amiss.

        ``bootstrap`` and ``settings`` are of the client, where it has others than the server's.
        """
        topic, records = self.topic(), megabytes * 1_000_000 // size
        job = BulkTask(
            "",
            bootstrap or server.bootstrap,
            server.pid,
            topic,
            size,
            records,
            admin=server.bootstrap,
            client=settings or {},
            is_varied=is_varied,
        )
        self._order(server.name, job, "create")
        found = {
            "produce": self._order(server.name, job, "produce"),
            "fetch": self._order(server.name, job, "fetch", FETCHES),
        }
        self._order(server.name, job, "delete")
        time.sleep(REST_S)
        return found

    def topic(self) -> str:
        """A name that no other round has."""
        self._topics += 1
        return f"bulk-{self._topics}"

    def order(self, server: str, job: BulkTask, do: str) -> BulkCost:
        """One step of a job that another module made; raises ServerFailed."""
        return self._order(server, job, do, job.times)

    def _order(self, server: str, job: BulkTask, do: str, times: int = 1) -> BulkCost:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {**asdict(job), "do": do, "times": times}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ServerFailed(f"{server}: the client ended; its traceback stands above")
        return BulkCost(**json.loads(answer))


@dataclass(slots=True)
class TransferCell:
    """One way of loading a server, and what all rounds of it cost, by server."""

    kind: str
    size: int
    rounds: dict[str, list[BulkCost]] = field(default_factory=dict)

    def rates(self, server: str) -> list[float]:
        """Megabytes of values per CPU second, round by round."""
        return [one.value_bytes / 1e6 / max(one.cpu_seconds, 0.01) for one in self.rounds[server]]

    def per_second(self, server: str) -> float:
        """The median of megabytes by the clock."""
        return median(one.value_bytes / 1e6 / one.wall_seconds for one in self.rounds[server])

    def ratio(self, server: str, rival: str) -> float:
        """The median of the ratios round by round."""
        pairs = zip(self.rates(server), self.rates(rival), strict=True)
        return median(ours / theirs for ours, theirs in pairs)


@dataclass(frozen=True, slots=True)
class ProduceFetchPlan:
    """How much and how often."""

    rounds: int
    megabytes: int
    warm_up: float


def measure(
    client: BulkClient, servers: Sequence[ServerProcess], plan: ProduceFetchPlan
) -> list[TransferCell]:
    """Warm both up, then visit every cell in every round, the servers in turn."""
    for server in servers:
        until = time.monotonic() + plan.warm_up
        while time.monotonic() < until:
            for size in SIZES:
                client.round(server, size, max(1, plan.megabytes // 8))
    cells = {
        (kind, size): TransferCell(kind, size) for size in SIZES for kind in ("produce", "fetch")
    }
    for number in range(plan.rounds):
        for size in SIZES:
            for server in servers if number % 2 == 0 else reversed(servers):
                for kind, result in client.round(server, size, plan.megabytes).items():
                    cells[kind, size].rounds.setdefault(server.name, []).append(result)
        print(f"round {number + 1} of {plan.rounds} done", file=sys.stderr)
    return list(cells.values())


def table(cells: Sequence[TransferCell], names: Sequence[str]) -> str:
    """Markdown, one row a cell: MB per CPU second, by the clock in brackets."""
    head = ["cell", *(f"{name}, MB per CPU second (per second)" for name in names)]
    rows = [head + [f"{names[0]} : {names[1]}"] * (len(names) > 1), ["---"] * (len(head) + 1)]
    rows[1] = ["---"] * len(rows[0])
    for cell in cells:
        row = [f"{cell.kind}, records of {cell.size} bytes"]
        row += [f"{median(cell.rates(name)):.0f} ({cell.per_second(name):.0f})" for name in names]
        if len(names) > 1:
            row.append(f"{cell.ratio(names[0], names[1]):.2f}")
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def document(cells: Sequence[TransferCell]) -> list[dict[str, object]]:
    """The same as plain data, every round included."""
    return [
        {
            "kind": cell.kind,
            "size": cell.size,
            **{
                name: {
                    "mb_per_cpu_second": cell.rates(name),
                    "mb_per_second": cell.per_second(name),
                }
                for name in cell.rounds
            },
        }
        for cell in cells
    ]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka beside it")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--only", choices=("barnabas", "kafka"), help="leave the other one out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=400, help="produced in one round")
    parser.add_argument("--warm-up", type=float, default=30.0, help="seconds of load beforehand")
    parser.add_argument("--zookeeper", help="HOST:PORT of one that runs already")
    parser.add_argument("--no-pin", action="store_true", help="let the scheduler choose cores")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    return parser.parse_args()


def main() -> None:
    """Measure what the command line names and print the table."""
    options = arguments()
    wanted = {"barnabas", options.against} if options.only is None else {options.only}
    libs = options.libs or os.environ.get("BARNABAS_KAFKA_LIBS")
    plan = ProduceFetchPlan(options.rounds, options.megabytes, options.warm_up)
    are_pinned = not options.no_pin and (os.cpu_count() or 1) >= 2
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        address = stack.enter_context(zookeeper_address(options.zookeeper, directory / "zookeeper"))
        servers = []
        if "barnabas" in wanted:
            root = f"{address}/barnabas-{os.getpid()}"
            servers.append(barnabas_node(directory / "barnabas", root, settings=SETTINGS))
        if "kafka" in wanted:
            jars = kafka_jars(Path(libs) if libs else None)
            root = f"{address}/kafka-{os.getpid()}"
            servers.append(kafka_node(jars, directory / "kafka", root, settings=SETTINGS))
        for server in servers:
            stack.enter_context(server)
            if are_pinned:
                pin(server.pid, {0})
        client = stack.enter_context(BulkClient({1} if are_pinned else None))
        cells = measure(client, servers, plan)
    names = [server.name for server in servers]
    print(f"machine: {machine()}")
    print(
        f"plan: {plan.rounds} rounds of {plan.megabytes} MB a size after {plan.warm_up:g} s of "
        f"warm-up each; pinned: {'broker core 0, client core 1' if are_pinned else 'no'}; "
        f"Apache Kafka {KAFKA_VERSION}"
    )
    print(table(cells, names))
    if options.json:
        found = {"machine": machine(), "plan": asdict(plan), "cells": document(cells)}
        options.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
