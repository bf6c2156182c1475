"""What a client that floods leaves to others, without quotas and with them.

    python -m benchmarks.fairness [--kinds produce fetch ...] [--rounds 5] [--json FILE]

Others commit offsets in a closed loop. In each round they are counted alone, beside a flood that
nothing bounds, and beside the same flood under quotas of its client id. What is left to them is
their commits per CPU second of the node, beside the flood and alone: on a machine that is shared
the clock tells more of its other work. What the flood takes of a core under quotas is counted
alone, too: it is the surer figure where others' rate varies. A ratio is the median of the rounds.
The flood is a process of its own that asks as fast as its connections are read, and heeds no
throttle time. Ends with 1 when quotas leave others less than ``--least``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.quotas import alter_quotas
from benchmarks import overload
from benchmarks.barnabas_node import ROOT
from benchmarks.commit import zookeeper_address
from benchmarks.generator import LoadWindow, WindowResult
from benchmarks.generator_process import GeneratorProcess
from benchmarks.overload import System
from benchmarks.overload_frames import CLIENT_ID
from benchmarks.overload_load import OverloadTask
from benchmarks.report import Rate, machine
from benchmarks.server_process import ServerFailed, cpu_seconds, pin

QUOTAS: Final = {
    "request_percentage": 4.0,
    "producer_byte_rate": 500_000.0,
    "consumer_byte_rate": 500_000.0,
}
"""Of the client id that floods; what is left of a core is what its frames cost to read."""
FLOODS: Final = {
    "produce": (16, 8),
    "fetch": (16, 8),
    "metadata": (16, 16),
    "commit": (16, 64),
}
"""Connections, and requests in flight on each."""
OTHERS: Final = 8
"""Connections with one commit in flight each."""
SETTLE_S: Final = 4.0
"""From the start of a flood until others are counted: ten seconds' worth of a quota may come at
once, and a flood begins with it."""
LEAST: Final = 0.9
SETTINGS: Final = {"beacon.timeout.ms": "5000"}
"""A lease lasts longer than a busy machine makes a node wait for a processor."""


@dataclass(slots=True)
class Fairness:
    """Commits of others in each round."""

    kind: str
    alone: list[Rate] = field(default_factory=list)
    unbounded: list[Rate] = field(default_factory=list)
    bounded: list[Rate] = field(default_factory=list)
    takes: list[float] = field(default_factory=list)
    """Of a core, by the flood alone under quotas: what the node used, others being silent."""

    def left(self, beside: Sequence[Rate]) -> float:
        """The median of what is left of the rate alone."""
        pairs = zip(beside, self.alone, strict=True)
        return median(some.per_cpu_second / whole.per_cpu_second for some, whole in pairs)

    def left_by_clock(self, beside: Sequence[Rate]) -> float:
        """The same per second."""
        pairs = zip(beside, self.alone, strict=True)
        return median(some.per_second / whole.per_second for some, whole in pairs)


class Others(GeneratorProcess):
    """Clients with good manners."""

    def __init__(self, system: System, cores: set[int] | None) -> None:
        super().__init__("benchmarks.generator", cores)
        self._system = system

    def commits(self, seconds: float) -> Rate:
        """One window; raises ServerFailed at the first wrong answer."""
        system = self._system
        ports = list(system.coordinators[:OTHERS])
        pids = [node.pid for node in system.nodes]
        job = LoadWindow(ports, pids, "commit", OTHERS, 1, seconds, overload.TOPIC)
        found = WindowResult(**self.order({"do": "run", "job": asdict(job)}))
        if found.wrong or not found.answers:
            raise ServerFailed(found.wrong or "others were not answered at all")
        return Rate(
            found.answers / max(found.cpu_seconds, 0.01), found.answers / found.wall_seconds
        )


@contextmanager
def flood(system: System, kind: str, seconds: float, cores: set[int] | None) -> Iterator[None]:
    """A process that floods, for as long as this lasts and ``seconds`` at most."""
    connections, in_flight = FLOODS[kind]
    ports = system.leaders if kind in ("produce", "fetch") else system.coordinators
    job = OverloadTask(
        kind, list(ports), connections, in_flight, seconds, 0.0, overload.TOPIC, overload.PARTITIONS
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.overload_load"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        if cores:
            pin(child.pid, cores)
        assert child.stdin is not None
        child.stdin.write(json.dumps(asdict(job)) + "\n")
        child.stdin.flush()
        time.sleep(SETTLE_S)
        yield
        if child.poll() is not None:
            raise ServerFailed("the flood ended before it was over")
    finally:
        child.kill()
        child.communicate()


async def _set_quotas(bootstrap: str, quotas: Mapping[str, float]) -> None:
    async with Admin.of([bootstrap]) as admin:
        removed = [] if quotas else list(QUOTAS)
        await alter_quotas(admin.cluster, {"client-id": CLIENT_ID}, quotas, removed)


def one_round(
    found: Fairness, system: System, others: Others, seconds: float, cores: set[int] | None
) -> None:
    """Beside a flood, alone, beside a flood under quotas, and alone again."""
    bootstrap = system.nodes[0].bootstrap
    with flood(system, found.kind, SETTLE_S + 10 * seconds, cores):
        found.unbounded.append(others.commits(seconds))
    before = others.commits(seconds)
    asyncio.run(_set_quotas(bootstrap, QUOTAS))
    with flood(system, found.kind, SETTLE_S + 10 * seconds, cores):
        found.bounded.append(others.commits(seconds))
        found.takes.append(_cores(system, seconds))
    asyncio.run(_set_quotas(bootstrap, {}))
    found.alone.append(_mean(before, others.commits(seconds)))


def _cores(system: System, seconds: float) -> float:
    """How much of a core the nodes use."""
    before, began = _cpu_seconds(system), time.monotonic()
    time.sleep(seconds)
    return (_cpu_seconds(system) - before) / (time.monotonic() - began)


def _cpu_seconds(system: System) -> float:
    return sum(cpu_seconds(node.pid) for node in system.nodes)


def _mean(one: Rate, other: Rate) -> Rate:
    return Rate(
        (one.per_cpu_second + other.per_cpu_second) / 2, (one.per_second + other.per_second) / 2
    )


def measure(
    system: System,
    kinds: Sequence[str],
    rounds: int,
    seconds: float,
    cores: set[int] | None = None,
) -> list[Fairness]:
    """Every kind in every round."""
    found = [Fairness(kind) for kind in kinds]
    with Others(system, cores) as others:
        others.commits(seconds)
        for number in range(rounds):
            for one in found:
                one_round(one, system, others, seconds, cores)
            print(f"round {number + 1} of {rounds} done", file=sys.stderr)
    return found


def table(found: Sequence[Fairness]) -> str:
    """Markdown, one row a kind of flood."""
    lines = [
        "| flood | others alone, k per CPU second (per second) "
        "| left without quotas (by the clock) | left with quotas (by the clock) "
        "| the flood takes, of a core |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in found:
        alone = median(rate.per_cpu_second for rate in one.alone) / 1e3
        by_clock = median(rate.per_second for rate in one.alone) / 1e3
        left = " | ".join(
            f"{one.left(beside):.2f} ({one.left_by_clock(beside):.2f})"
            for beside in (one.unbounded, one.bounded)
        )
        lines.append(
            f"| {one.kind} | {alone:.1f} ({by_clock:.1f}) | {left} | {median(one.takes):.3f} |"
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=FLOODS, default=list(FLOODS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one window")
    parser.add_argument("--least", type=float, default=LEAST, help="what quotas have to leave")
    parser.add_argument("--zookeeper", help="HOST:PORT of one that runs already")
    parser.add_argument("--no-pin", action="store_true", help="let the scheduler choose cores")
    parser.add_argument("--json", type=Path, help="write every round to this file")
    return parser.parse_args()


def main() -> None:
    """Measure what the command line names and print the table."""
    options = arguments()
    are_pinned = not options.no_pin and (os.cpu_count() or 1) >= 2
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        address = stack.enter_context(zookeeper_address(options.zookeeper, directory / "zookeeper"))
        system = stack.enter_context(overload.barnabas(1, directory, address, SETTINGS))
        system.prepare()
        overload.load(system, "produce", 0.5, 0.0)
        if are_pinned:
            pin(system.nodes[0].pid, {0})
        found = measure(
            system, options.kinds, options.rounds, options.seconds, {1} if are_pinned else None
        )
    print(f"machine: {machine()}")
    print(f"quotas: {QUOTAS}; {options.rounds} rounds of {options.seconds:g} s")
    print(table(found))
    if options.json:
        document: dict[str, Any] = {"machine": machine(), "kinds": [asdict(one) for one in found]}
        options.json.write_text(json.dumps(document, indent=2))
    if any(one.left(one.bounded) < options.least for one in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
