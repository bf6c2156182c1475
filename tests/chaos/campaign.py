"""A chaos run: three nodes, a ZooKeeper, load, and one fault after the other.

    python -m tests.chaos.campaign [--rounds 60] [--seed 1] [--no-beacons] [--zookeeper]
                                   [--json FILE]

prints a row a round, then medians, then what was seen, and ends with 1 when anything was lost.
With ``--zookeeper`` its servers, three then, are stalled, restarted and killed in half of them.
Source: docs/spec/reliability.md §3 and §4.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas.console.development.cluster import Cluster
from benchmarks.cluster_view import ClusterView
from benchmarks.zookeeper_servers import ZooKeepers
from tests.harness.waiting import eventually

from .load import OFFSETS
from .offset_load import LateQuestions
from .schedule import NODE_FAULTS, ZOOKEEPER_FAULTS, Aim, Fault, Round, schedule
from .trial import NODES, OFFSETS_PARTITIONS, Trial, last_words, serious

SETTINGS: Final = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
    "min.insync.replicas": "2",
}
"""Leadership returns at once, so that every node has something to lose in every round."""
MOST_SHOWN: Final = 20
SERVERS: Final = 3
"""Of ZooKeeper, where its faults are among those wanted."""
TICK_MS: Final = 500
EXTERNAL: Final = "ZK_EXTERNAL"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one round did."""

    number: int
    planned: Round
    victim: int
    """Which node; 0 for ZooKeeper."""
    is_both: bool
    """The victim was controller and coordinated groups of ours."""
    outage_s: float
    """The longest that one of the victim's groups, or any for ZooKeeper, was without a commit."""
    healed_s: float
    """From the victim's return until all replicas were in sync."""

    def __str__(self) -> str:
        """A row of the table."""
        was = "both" if self.is_both else "coordinator" if self.victim else "ZooKeeper"
        return (
            f"| {self.number} | {self.planned.fault.value} | {self.planned.seconds:.1f} | "
            f"{self.victim or '-'} | {was} | {self.outage_s:.2f} | {self.healed_s:.1f} |"
        )


HEAD: Final = (
    "| round | fault | for s | node | was | without a commit s | in sync again s |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


class Campaign:
    """One run on one cluster."""

    def __init__(
        self,
        cluster: Cluster,
        view: ClusterView,
        seed: int,
        tell: Tell,
        zookeepers: ZooKeepers | None = None,
    ) -> None:
        self.outcomes: list[Outcome] = []
        self.totals: dict[str, int] = {}
        self._cluster = cluster
        self._view = view
        self._tell = tell
        self._zookeepers = zookeepers
        directories = [node.directory / "data" for node in cluster.nodes]
        self._trial = Trial([node.port for node in cluster.nodes], directories, view, seed)

    def run(self, rounds: Sequence[Round]) -> list[str]:
        """All rounds; returns everything that must not be, which is nothing."""
        self._tell(HEAD)
        with self._trial as trial:
            trial.await_progress()
            for number, planned in enumerate(rounds, 1):
                self.outcomes.append(self._round(number, planned))
                self._tell(str(self.outcomes[-1]))
        trial.await_rest("all in sync")
        found = trial.findings()
        self._tell(f"{trial.load.totals()}, {trial.records} in the log")
        self.totals.update(trial.load.counts())
        return found

    def _round(self, number: int, planned: Round) -> Outcome:
        victim, groups, is_both = self._target(planned)
        moment = time.monotonic()
        if victim:
            self._hurt(victim, planned, groups)
        else:
            self._hurt_zookeeper(planned)
        back = time.monotonic()
        self._trial.await_rest("all in sync again")
        healed = time.monotonic()
        self._trial.await_progress()
        outage = self._trial.outage_s(groups, moment)
        return Outcome(number, planned, victim, is_both, outage, healed - back)

    def _target(self, planned: Round) -> tuple[int, Sequence[str], bool]:
        """The victim, its groups, and whether it rules: all as they were when it was chosen."""
        if planned.aim is Aim.ENSEMBLE:
            return 0, self._trial.load.groups, False
        if planned.aim is Aim.BOTH:
            found = eventually(self._ruling_coordinator, what="a controller that coordinates")
            assert found is not None
            return *found, True
        nodes = {node: self._trial.groups_of(node) for node in range(1, NODES + 1)}
        if planned.aim is Aim.COORDINATOR:
            nodes = {node: groups for node, groups in nodes.items() if groups}
        victim = list(nodes)[int(planned.luck * len(nodes))]
        return victim, nodes[victim], bool(nodes[victim]) and self._view.controller() == victim

    def _ruling_coordinator(self) -> tuple[int, Sequence[str]] | None:
        controller = self._view.controller()
        groups = self._trial.groups_of(controller) if controller else []
        return (controller, groups) if controller and groups else None

    def _hurt_zookeeper(self, planned: Round) -> None:
        """Stall all servers, restart one after the other, or kill one, which may be the leader."""
        assert self._zookeepers is not None, "its faults are wanted"
        if planned.fault is Fault.STALL:
            self._zookeepers.pause()
            try:
                time.sleep(planned.seconds)
            finally:
                self._zookeepers.resume()
            return
        servers = self._zookeepers.servers
        if planned.fault is Fault.SERVER:
            servers = [servers[int(planned.luck * len(servers))]]
        for server in servers:
            server.kill()
            time.sleep(planned.seconds)
            server.restart()

    def _hurt(self, victim: int, planned: Round, groups: Sequence[str]) -> None:
        node = self._cluster.node(victim)
        if planned.fault is Fault.STOP:
            node.pause()
            time.sleep(planned.seconds)
            late = (
                LateQuestions(self._trial.addresses[victim - 1], OFFSETS, groups)
                if groups
                else None
            )
            node.resume()
            if late is not None:
                reads, codes = late.answers()
                self._trial.load.late.append(reads)
                self._trial.load.late_codes += codes
            return
        if planned.fault is Fault.KILL:
            node.kill()
        else:
            node.ask_to_stop()
            node.wait_stopped()
            assert node.exit_code == 0, f"node {victim} ended with {node.exit_code}"
        time.sleep(planned.seconds)
        self._cluster.restart(victim)


@dataclass(slots=True)
class Report:
    """What a whole run found."""

    outcomes: list[Outcome] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    totals: Mapping[str, int] = field(default_factory=dict)
    """How much the clients did, by what it is."""

    def counts(self) -> dict[str, Any]:
        """For a report; outages in seconds."""
        faults = Counter(one.planned.fault.value for one in self.outcomes)
        outages = {
            fault.value: sorted(
                one.outage_s for one in self.outcomes if one.planned.fault is fault and one.outage_s
            )
            for fault in Fault
        }
        return {
            "rounds": len(self.outcomes),
            "faults": faults,
            "findings": self.findings,
            "figures": {
                "rounds on controller and coordinator": sum(one.is_both for one in self.outcomes),
                **self.totals,
                **{
                    f"{fault}: s without a commit": {
                        "median": round(statistics.median(found), 2),
                        "worst": round(found[-1], 2),
                    }
                    for fault, found in outages.items()
                    if found
                },
                "in sync again, worst s": round(
                    max((one.healed_s for one in self.outcomes), default=0.0), 1
                ),
            },
        }

    def summary(self) -> str:
        """Median and worst outage of each fault, apart for whoever was controller, too."""
        rows = ["| fault | was | rounds | median s | worst s |", "| --- | --- | --- | --- | --- |"]
        for fault, is_both in itertools.product(Fault, (False, True)):
            found = [
                one.outage_s
                for one in self.outcomes
                if one.planned.fault is fault and one.is_both is is_both and one.outage_s
            ]
            if found:
                of_node = "both" if is_both else "coordinator"
                was = "ZooKeeper" if fault in ZOOKEEPER_FAULTS else of_node
                rows.append(
                    f"| {fault.value} | {was} | {len(found)} | "
                    f"{statistics.median(found):.2f} | {max(found):.2f} |"
                )
        return "\n".join(rows)


def run(
    rounds: int,
    seed: int,
    tell: Tell,
    *,
    longest_pause_s: float = 10.0,
    settings: dict[str, str] | None = None,
    faults: Sequence[Fault] = NODE_FAULTS,
) -> Report:
    """A whole run on a new cluster; whatever fails comes with seed, schedule and last log lines."""
    planned = schedule(seed, rounds, longest_pause_s, faults)
    report = Report()
    with ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        zookeepers = None
        if set(faults) & set(ZOOKEEPER_FAULTS):
            zookeepers = stack.enter_context(ZooKeepers(SERVERS, TICK_MS))
            stack.enter_context(external(zookeepers.hosts))
        cluster = Cluster(NODES, data, settings={**SETTINGS, **(settings or {})})
        with cluster, ClusterView(cluster.zookeeper) as view:
            campaign = Campaign(cluster, view, seed, tell, zookeepers)
            report.outcomes = campaign.outcomes
            report.totals = campaign.totals
            try:
                report.findings = campaign.run(planned)
                report.findings += serious(logs_in(data))
            except BaseException:
                tell(post_mortem(data, seed, planned))
                raise
            if report.findings:
                tell(post_mortem(data, seed, planned))
                tell("\n".join(report.findings[:MOST_SHOWN]))
    return report


@contextmanager
def external(hosts: str) -> Iterator[None]:
    """Clusters started meanwhile use this ZooKeeper."""
    former = os.environ.get(EXTERNAL)
    os.environ[EXTERNAL] = hosts
    try:
        yield
    finally:
        if former is None:
            del os.environ[EXTERNAL]
        else:
            os.environ[EXTERNAL] = former


def logs_in(data: Path) -> list[Path]:
    """The nodes' logs."""
    return sorted(data.glob("node-*/node.log"))


def post_mortem(data: Path, seed: int, planned: Sequence[Round]) -> str:
    """What is needed to see why a run failed."""
    parts = [f"seed {seed}", *(f"{number} {one}" for number, one in enumerate(planned, 1))]
    return "\n".join(parts + last_words(logs_in(data)))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-beacons", action="store_true")
    parser.add_argument("--zookeeper", action="store_true", help="hurt ZooKeeper, too")
    parser.add_argument("--json", type=Path, help="write counts, figures and findings here")
    given = parser.parse_args()
    settings = {"beacon.enable": "false"} if given.no_beacons else {}

    def tell(line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the command's output

    faults = (*NODE_FAULTS, *ZOOKEEPER_FAULTS) if given.zookeeper else NODE_FAULTS
    report = run(given.rounds, given.seed, tell, settings=settings, faults=faults)
    tell(report.summary())
    tell(f"{len(report.findings)} findings")
    if given.json is not None:
        given.json.write_text(json.dumps(report.counts()))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
