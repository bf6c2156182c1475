"""A cluster of an earlier release is upgraded node by node under load, and downgraded again.

    python -m tests.upgrade.rolling [--seed 1] [--json FILE]

prints a row for each node that changed, then what was seen, and ends with 1 when anything was lost.
Source: docs/operations.md, "Upgrading".
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from barnabas.console.development.cluster import DEVELOPMENT_SETTINGS, copies
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.console.development.readiness_probe import wait_until_complete
from benchmarks.cluster_view import ClusterView
from benchmarks.server_process import ServerProcess
from tests.chaos.trial import NODES, OFFSETS_PARTITIONS, Trial, last_words, serious
from tests.upgrade.releases import BEFORE_VOTERS, Release, path_of

STOP_S: Final = 60.0
SETTINGS: Final = {
    **DEVELOPMENT_SETTINGS,
    **copies(NODES),
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
    "min.insync.replicas": "2",
    "cluster.secret": "rolling",
}

Tell = Callable[[str], None]
Moved = Callable[[Sequence["MixedNode"]], None]
"""Told after each move, with all nodes."""


class MixedNode:
    """A node whose release may change; its port, settings and data stay."""

    def __init__(self, number: int, zookeeper: str, directory: Path) -> None:
        self.id = number
        (self.port,) = free_ports(1)
        self.data = directory / "data"
        self.release = "none"
        self._directory = directory
        self._process: ServerProcess | None = None
        own = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "log.dirs": str(self.data),
            "zookeeper.connect": zookeeper,
        }
        directory.mkdir()
        lines = (f"{name}={value}\n" for name, value in {**SETTINGS, **own}.items())
        (directory / "server.properties").write_text("".join(lines))

    def start(self, release: Release | None) -> None:
        """Begin to start as this release, None being the checkout."""
        self.release = release.version if release else "checkout"
        program = ["/usr/bin/env", f"PYTHONPATH={path_of(release)}", sys.executable, "-P"]
        command = [*program, "-m", "barnabas.broker", str(self._directory / "server.properties")]
        log = self._directory / f"{time.time_ns()}-{self.release}.log"
        self._process = ServerProcess(f"node-{self.id}", command, self.port, log)
        self._process.launch()

    def wait_until_listening(self) -> None:
        assert self._process is not None
        self._process.wait_until_listening()

    def stop(self) -> None:
        """SIGTERM; the node hands over what it leads before it ends."""
        if self._process is not None:
            self._process.stop()

    def logs(self) -> list[Path]:
        return sorted(self._directory.glob("*.log"))


class MixedCluster:
    """Three nodes and a ZooKeeper; use it in a ``with``."""

    def __init__(self, release: Release | None) -> None:
        self.nodes: list[MixedNode] = []
        self._release = release
        self._running = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as started:
            directory = Path(
                started.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-rolling-"))
            )
            self.zookeeper = EmbeddedZooKeeper().start()
            started.callback(self.zookeeper.stop)
            for number in range(1, NODES + 1):
                node = MixedNode(number, self.zookeeper.hosts, directory / f"node-{number}")
                started.callback(node.stop)
                node.start(self._release)
                self.nodes.append(node)
            for node in self.nodes:
                node.wait_until_listening()
            wait_until_complete([(LOOPBACK, node.port) for node in self.nodes], NODES)
            self._running = started.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._running.close()


@dataclass(slots=True)
class Report:
    """What was changed, and what was seen."""

    moves: list[tuple[str, int, bool, float]] = field(default_factory=list)
    """The release, the node, whether it was controller, seconds that a group waited."""
    findings: list[str] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)

    def counts(self) -> dict[str, Any]:
        """For a result file."""
        worst: dict[str, float] = {}
        for release, _, _, outage in self.moves:
            worst[release] = max(worst.get(release, 0.0), round(outage, 2))
        return {
            "moves": len(self.moves),
            "findings": self.findings,
            "figures": {"longest wait for a commit, s, by new release": worst, **self.totals},
        }


def roll(
    tell: Tell,
    earlier: Release = BEFORE_VOTERS,
    seed: int = 1,
    moved: Moved = lambda nodes: None,
) -> Report:
    """From the earlier release to the checkout and back, the controller last each time."""
    report = Report()
    with MixedCluster(earlier) as cluster, ClusterView(cluster.zookeeper.hosts) as view:
        nodes = cluster.nodes
        try:
            trial = Trial([node.port for node in nodes], [node.data for node in nodes], view, seed)
            with trial:
                trial.await_rest("all in sync")
                trial.await_progress()
                for release in (None, earlier):
                    ruler = view.controller()
                    for node in sorted(
                        nodes, key=lambda candidate: (candidate.id == ruler, candidate.id)
                    ):
                        report.moves.append(_moved(node, release, trial, view))
                        tell("| {} | node {} | {} | {:.2f} s |".format(*_words(report.moves[-1])))
                        moved(nodes)
            trial.await_rest("all in sync")
            report.findings = trial.findings() + serious(_logs(cluster))
        except BaseException:
            tell("\n".join(last_words(_logs(cluster))))
            raise
        report.totals = trial.load.counts()
        tell(f"{trial.load.totals()}, {trial.records} in the log")
    return report


def _moved(
    node: MixedNode, release: Release | None, trial: Trial, view: ClusterView
) -> tuple[str, int, bool, float]:
    groups, is_controller = trial.groups_of(node.id), view.controller() == node.id
    moment = time.monotonic()
    node.stop()
    node.start(release)
    node.wait_until_listening()
    trial.await_rest(f"all in sync with node {node.id} as {node.release}")
    trial.await_progress()
    return node.release, node.id, is_controller, trial.outage_s(groups, moment)


def _words(move: tuple[str, int, bool, float]) -> tuple[str, int, str, float]:
    release, node, is_controller, outage = move
    return release, node, "controller" if is_controller else "", outage


def _logs(cluster: MixedCluster) -> list[Path]:
    return [log for node in cluster.nodes for log in node.logs()]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of the clients' choices")
    parser.add_argument("--json", type=Path, help="write counts, figures and findings here")
    given = parser.parse_args()

    def tell(line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the command's output

    report = roll(tell, seed=given.seed)
    for line in report.findings:
        tell(line)
    tell(f"{len(report.findings)} findings")
    if given.json is not None:
        given.json.write_text(json.dumps(report.counts()))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
