"""Three nodes that work for long: do memory, descriptors, disk and latency stay what they are?

    python -m tests.chaos.endurance [--minutes 2] [--json FILE]

Nodes are restarted in turn, logs compacted and cut off by size, groups rebalanced, and many groups
commit. Node 3 is restarted once at the beginning and lives on, so that what grows in it shows.
Ends with 1 when something was lost or keeps growing. Source: docs/spec/reliability.md §9.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from kazoo.exceptions import KazooException

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.ports import LOOPBACK
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView

from .campaign import Tell
from .endurance_load import COMPACTED, KEPT, EnduranceLoad, create_topics
from .trial import await_none, last_words, serious

NODES: Final = 3
LONG_LIVED: Final = 3
ROUNDS: Final = 12
"""The run in parts: at the end of each a node is restarted, of the first one the long-lived."""
SAMPLES: Final = 240
JUDGED_MINUTES: Final = 30.0
"""A shorter run says nothing about growth: caches still fill."""
MANY_GROUPS, FEW_GROUPS = 10_000, 500
MIB: Final = 1 << 20
SETTINGS: Final = {
    "offsets.topic.num.partitions": "6",
    "offsets.topic.segment.bytes": str(MIB),
    "min.insync.replicas": "2",
    "log.cleaner.backoff.ms": "2000",
    "log.retention.check.interval.ms": "5000",
    "leader.imbalance.check.interval.seconds": "5",
    "leader.imbalance.per.broker.percentage": "0",
}
ALLOWANCES: Final = {
    "memory MiB": (1.15, 16.0),
    "descriptors": (1.15, 32.0),
    "logs MiB": (1.5, 64.0),
}
"""By what factor, and how much more, the last third may exceed the middle one."""


@dataclass(slots=True)
class Samples:
    """What was measured, a value for each moment."""

    minutes: list[float] = field(default_factory=list)
    nodes: dict[str, dict[int, list[float]]] = field(
        default_factory=lambda: {
            what: {node: [] for node in range(1, NODES + 1)} for what in ALLOWANCES
        }
    )
    """Memory, descriptors and logs of each node."""
    commit_ms: dict[str, list[float]] = field(
        default_factory=lambda: {"median": [], "99 of 100": []}
    )
    """How long the commits of one group took since the last moment."""

    def add(self, minutes: float, cluster: Cluster, waits_s: Sequence[float]) -> None:
        """Measure now."""
        self.minutes.append(round(minutes, 3))
        for node in cluster.nodes:
            process = Path(f"/proc/{node.pid}")
            found = {
                "memory MiB": memory_mib(process),
                "descriptors": float(len(list((process / "fd").iterdir()))),
                "logs MiB": logs_mib(node.directory / "data"),
            }
            for what, value in found.items():
                self.nodes[what][node.id].append(round(value, 1))
        ordered = sorted(waits_s) or [0.0]
        self.commit_ms["median"].append(round(statistics.median(ordered) * 1e3, 2))
        self.commit_ms["99 of 100"].append(round(ordered[len(ordered) * 99 // 100] * 1e3, 2))

    def text(self) -> dict[str, str]:
        """Every series as numbers with blanks between, by its name."""
        found = {"minutes": self.minutes}
        for what, nodes in self.nodes.items():
            found |= {f"{what}, node {node}": values for node, values in nodes.items()}
        found |= {f"commit ms, {name}": values for name, values in self.commit_ms.items()}
        return {name: " ".join(f"{value:g}" for value in values) for name, values in found.items()}


@dataclass(slots=True)
class Report:
    """What a run came to."""

    minutes: float
    restarts: int = 0
    findings: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    samples: dict[str, str] = field(default_factory=dict)


def memory_mib(process: Path) -> float:
    """What a process holds of the machine's memory (proc(5), VmRSS)."""
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def logs_mib(directory: Path) -> float:
    """Sizes of all segments; some of them go meanwhile. What is on disk of them comes later."""
    total = 0
    for file in directory.rglob("*.log"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue
    return total / MIB


def thirds(values: Sequence[float]) -> tuple[float, float]:
    """Medians of the middle and the last third."""
    size = max(1, len(values) // 3)
    return statistics.median(values[-2 * size : -size] or values), statistics.median(values[-size:])


def growth(nodes: Mapping[str, Mapping[int, Sequence[float]]]) -> list[str]:
    """What the long-lived node had clearly more of in the last third than in the middle one."""
    found: list[str] = []
    for what, (factor, more) in ALLOWANCES.items():
        middle, last = thirds(nodes[what][LONG_LIVED])
        if last > middle * factor + more:
            found.append(f"{what} of node {LONG_LIVED} grew from {middle:g} to {last:g}")
    return found


def run(minutes: float, tell: Tell, kept: Path | None = None) -> Report:
    """A whole run on a new cluster; the nodes' logs go to ``kept`` when something was found."""
    report, samples = Report(minutes), Samples()
    groups = MANY_GROUPS if minutes >= JUDGED_MINUTES else FEW_GROUPS
    with Cluster(NODES, settings=SETTINGS) as cluster, ClusterView(cluster.zookeeper) as view:
        logs = [node.log for node in cluster.nodes]
        try:
            create_topics(cluster.bootstrap)
            addresses = [(LOOPBACK, node.port) for node in cluster.nodes]
            load = EnduranceLoad(addresses, cluster.bootstrap, groups)
            with ExitStack() as stack:
                for activity in load.activities:
                    stack.enter_context(activity)
                _work(minutes, cluster, view, load, samples, report, tell)
                for activity in load.activities:
                    activity.is_over.set()
            _await_rest(view)
            report.figures = {"groups": groups, **load.counts()}
            report.findings += load.findings(cluster.bootstrap)
            removed = load.removed(cluster.bootstrap)
            report.figures |= removed
            if minutes >= JUDGED_MINUTES:  # else the run proves nothing about these
                report.findings += [f"no {what}" for what, count in removed.items() if not count]
        except Exception as failure:  # noqa: BLE001 - the command writes what there is
            report.findings.append(f"{type(failure).__name__}: {failure}")
        report.findings += serious(logs)
        if report.findings:
            tell("\n".join(last_words(logs)))
            if kept is not None:
                for log in logs:
                    shutil.copy(log, kept / f"{log.parent.name}.log")
    _judge(report, samples)
    return report


def _work(
    minutes: float,
    cluster: Cluster,
    view: ClusterView,
    load: EnduranceLoad,
    samples: Samples,
    report: Report,
    tell: Tell,
) -> None:
    began = time.monotonic()
    for part in range(1, ROUNDS + 1):
        end = began + minutes * 60 * part / ROUNDS
        while (left_s := end - time.monotonic()) > 0:
            time.sleep(min(left_s, minutes * 60 / SAMPLES))
            load.check()
            samples.add((time.monotonic() - began) / 60, cluster, load.take_waits())
        node = LONG_LIVED if part == 1 else 1 + part % (NODES - 1)
        cluster.restart(node)
        report.restarts += 1
        _await_rest(view)
        tell(f"{part} of {ROUNDS}: restarted node {node}, {load.counts()}")


def _await_rest(view: ClusterView) -> None:
    def wants() -> list[str]:
        try:
            found = view.wants([COMPACTED, KEPT, OFFSETS_TOPIC])
            return found + ["a node"] * (len(view.brokers()) < NODES)
        except KazooException as error:
            return [repr(error)]

    await_none(wants, "all in sync")


def _judge(report: Report, samples: Samples) -> None:
    if not samples.minutes:
        return
    report.samples = samples.text()
    skipped = len(samples.minutes) // ROUNDS  # the long-lived node's life begins there
    nodes = {
        what: {node: many[skipped:] for node, many in series.items()}
        for what, series in samples.nodes.items()
    }
    if report.minutes >= JUDGED_MINUTES:
        report.findings += growth(nodes)
    for what in ALLOWANCES:
        middle, last = thirds(nodes[what][LONG_LIVED])
        report.figures[f"{what} of the long-lived node, middle and last third"] = (
            f"{middle:g} {last:g}"
        )
    middle, last = thirds(samples.commit_ms["99 of 100"])
    report.figures["commit ms, 99 of 100, middle and last third"] = f"{middle:g} {last:g}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--json", type=Path, help="write what came of it here")
    parser.add_argument("--logs", type=Path, help="a directory: keep the logs of a bad run there")
    given = parser.parse_args()

    def tell(line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the command's output

    report = run(given.minutes, tell, given.logs)
    tell("\n".join([*report.findings, f"{len(report.findings)} findings"]))
    if given.json is not None:
        given.json.write_text(json.dumps(asdict(report)))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
