"""A run of faults of every kind on three nodes, each in a network and on a disk of its own.

    python -m tests.chaos.fault_campaign [--rounds 16] [--seed 1] [--json FILE]

prints a row a round and what was seen, and ends with 1 when anything was lost or did not come
back; what cannot be had on this machine is skipped and said. Needs root: the process goes into
namespaces of its own. Source: docs/spec/reliability.md §3 and §4.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.cluster_view import ClusterView
from tests.chaos.load_of_every_client import EveryClient
from tests.chaos.network_namespaces import Network
from tests.crash.powered_disk import hide_mounts, why_not
from tests.harness.patience import be_patient
from tests.harness.waiting import eventually

from . import network_namespaces as networks
from .campaign import SETTINGS, Tell
from .fault_kinds import DISKS, FaultKind, Planned, impossible, plan
from .injectors import Injectors
from .networked_cluster import NetworkedCluster
from .schedule import Aim
from .trial import NODES, Trial, last_words, serious_in

CLIENTS_S: Final = 150.0
"""Every client has got on by then, those that others wrote and their waits included."""
HEAD: Final = (
    "| round | fault | for s | node | was | without a commit s | in sync again s |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)
NOBODY: Final = "-"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one fault did."""

    number: int
    fault: str
    seconds: float
    victim: int
    is_both: bool
    """The victim was controller and coordinated groups of ours."""
    outage_s: float
    """The longest that one of the groups in question was without an acknowledged commit."""
    healed_s: float
    """From the end of the fault until all replicas were in sync."""
    elections: int
    """How many controllers were elected meanwhile."""

    def __str__(self) -> str:
        """A row of the table."""
        return (
            f"| {self.number} | {self.fault} | {self.seconds:.1f} | {self.victim or NOBODY} | "
            f"{'both' if self.is_both else NOBODY} | {self.outage_s:.2f} | {self.healed_s:.1f} |"
        )


class FaultTrial(Trial):
    """A trial with clients that wait in ways of their own."""

    patience_s = CLIENTS_S


@dataclass(slots=True)
class Report:
    """What a run came to."""

    seed: int
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Faults that could not be had, by kind."""
    why: Mapping[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    totals: Mapping[str, int] = field(default_factory=dict)


class FaultCampaign:
    """One run on one cluster."""

    def __init__(self, cluster: NetworkedCluster, view: ClusterView, seed: int, tell: Tell) -> None:
        self.outcomes: list[Outcome] = []
        self.totals: dict[str, int] = {}
        self._cluster = cluster
        self._view = view
        self._tell = tell
        self._trial = FaultTrial(
            [node.port for node in cluster.nodes],
            [cluster.networked(node.id).data for node in cluster.nodes],
            view,
            seed,
            hosts=cluster.network.hosts,
            clients=EveryClient,
        )
        self._injectors = Injectors(cluster, self._trial)
        self._expected: dict[int, list[tuple[int, int]]] = {node.id: [] for node in cluster.nodes}
        """Parts of each node's log, in bytes, where errors are what was asked for."""

    def run(self, faults: Sequence[Planned]) -> list[str]:
        """All faults; returns everything that must not be, which is nothing."""
        self._tell(HEAD)
        with self._trial as trial:
            trial.await_progress()
            for number, planned in enumerate(faults, 1):
                self.outcomes.append(self._round(number, planned))
                self._tell(str(self.outcomes[-1]))
        trial.await_rest("all in sync")
        found = trial.findings()
        self._tell(f"{trial.load.totals()}, {trial.records} in the log")
        self.totals.update(trial.load.counts())
        return found + self._errors()

    def _round(self, number: int, planned: Planned) -> Outcome:
        victim, groups, is_both = self._target(planned)
        epoch = self._controller_epoch()
        log = self._cluster.node(victim).log if victim else None
        start = log.stat().st_size if log else 0
        moment = time.monotonic()
        with self._injectors.fault(victim, planned, groups):
            time.sleep(planned.seconds)
        back = time.monotonic()
        self._trial.await_rest(f"all in sync after round {number}, {planned}")
        healed = time.monotonic()
        self._trial.await_progress()
        if log and planned.kind in DISKS:
            self._expected[victim].append((start, log.stat().st_size))
        return Outcome(
            number,
            planned.kind.value,
            planned.seconds,
            victim,
            is_both,
            self._trial.outage_s(groups, moment),
            healed - back,
            self._controller_epoch() - epoch,
        )

    def _target(self, planned: Planned) -> tuple[int, Sequence[str], bool]:
        """The victim, its groups, and whether it rules: all as they were when it was chosen."""
        if planned.kind is FaultKind.ZOOKEEPER_STOPPED:
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

    def _controller_epoch(self) -> int:
        def ask() -> int | None:
            return self._view.number("/controller_epoch")

        return eventually(ask, what="the controller's epoch") or 0

    def _errors(self) -> list[str]:
        """Errors in the nodes' logs but for those of disks that were to fail."""
        found: list[str] = []
        for node in self._cluster.nodes:
            data, position = node.log.read_bytes(), 0
            for start, end in [*self._expected[node.id], (len(data), len(data))]:
                text = data[position:start].decode(errors="replace")
                found += [f"node {node.id}: {line}" for line in serious_in(text)]
                position = end
        return found


class Resets(logging.Handler):
    """Tells why kafka-python gave a position up: a group that begins anew is a finding later."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        words = ("Truncation detected", "out of range", "Resetting offset")
        if any(phrase in said for phrase in words):
            self._tell(f"{time.monotonic():.1f} kafka-python: {said}")


def run(
    rounds: int,
    seed: int,
    tell: Tell,
    *,
    longest_s: float = 10.0,
    kinds: Sequence[FaultKind] = tuple(FaultKind),
) -> Report:
    """A whole run on a new cluster, in namespaces that this process then is in.

    What fails is a finding with seed and round, after the last lines of the nodes' logs.
    """
    planned = plan(seed, rounds, longest_s, kinds)
    none = networks.why_not()
    why = dict.fromkeys(FaultKind, none) if none else impossible()
    left_out = Counter(one.kind.value for one in planned if one.kind in why)
    report = Report(
        seed, skipped=dict(left_out), why={kind.value: text for kind, text in why.items()}
    )
    wanted = [one for one in planned if one.kind not in why]
    if not wanted:
        return report
    hide_mounts()
    with Network(NODES) as network:
        cluster = NetworkedCluster(network, SETTINGS, have_disks=not why_not())
        with cluster, ClusterView(cluster.zookeeper) as view:
            campaign = FaultCampaign(cluster, view, seed, tell)
            report.outcomes, report.totals = campaign.outcomes, campaign.totals
            try:
                report.findings = campaign.run(wanted)
            except Exception as failure:  # noqa: BLE001 - whatever it is, the seed is told
                report.findings = [f"seed {seed}: {type(failure).__name__}: {failure}"]
            if report.findings:
                logs = [node.log for node in cluster.nodes]
                schedule = [f"{number} {one}" for number, one in enumerate(wanted, 1)]
                tell("\n".join([f"seed {seed}", *schedule, *last_words(logs)]))
    return report


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=len(FaultKind))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=float, default=10.0, help="a fault lasts so many seconds")
    parser.add_argument("--kind", action="append", choices=list(FaultKind.__members__), default=[])
    parser.add_argument("--json", type=Path, help="write what came of it here")
    given = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())  # lost connections are no news here
    be_patient()

    def tell(line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the command's output

    resets = Resets(tell)
    logging.getLogger("kafka.consumer.fetcher").addHandler(resets)
    logging.getLogger("kafka.consumer.fetcher").setLevel(logging.INFO)

    kinds = [FaultKind[name] for name in given.kind] or list(FaultKind)
    report = run(given.rounds, given.seed, tell, longest_s=given.longest, kinds=kinds)
    for kind, count in report.skipped.items():
        tell(f"skipped {count} of {kind}: {report.why[kind]}")
    tell("\n".join([*report.findings, f"{len(report.findings)} findings"]))
    if given.json is not None:
        found: dict[str, Any] = asdict(report)
        given.json.write_text(json.dumps(found))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
