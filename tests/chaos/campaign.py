"""A chaos run: three nodes, a ZooKeeper, load, and one fault after the other.

    python -m tests.chaos.campaign [--rounds 60] [--seed 1] [--no-beacons]

prints a row a round, then medians, then what was seen, and ends with 1 when anything was lost.
Source: reliability.md sections 3 and 4; issue 5, "Done when".
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.console.development_cluster import Cluster
from barnabas.console.ports import LOOPBACK
from barnabas.protocol.hashing import group_partition
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from tests.harness.confluent_client import Confluent
from tests.harness.raw import Address, Closed, RawConnection
from tests.harness.raw_calls import NO_ERROR, fetch_offsets, find_coordinator
from tests.harness.waiting import TooLate, eventually

from .load import MEMBERS, OFFSETS, PARTITIONS, RECORDS, Load
from .offset_load import LateQuestions
from .record_checks import Place, differences
from .registers import Read
from .schedule import Aim, Fault, Round, schedule

NODES: Final = 3
SETTINGS: Final = {
    "offsets.topic.num.partitions": "6",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
    "min.insync.replicas": "2",
}
"""Leadership returns at once, so that every node has something to lose in every round."""
RECOVERY_S: Final = 60.0
LAST_LINES: Final = 40
MOST_SHOWN: Final = 20

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one round did."""

    number: int
    planned: Round
    victim: int
    is_both: bool
    """The victim was controller and coordinated groups of ours."""
    outage_s: float
    """The longest that one of the victim's groups was without an acknowledged commit."""
    healed_s: float
    """From the victim's return until all replicas were in sync."""

    def __str__(self) -> str:
        """A row of the table."""
        return (
            f"| {self.number} | {self.planned.fault.value} | {self.planned.seconds:.1f} | "
            f"{self.victim} | {'both' if self.is_both else 'coordinator'} | {self.outage_s:.2f} | "
            f"{self.healed_s:.1f} |"
        )


HEAD: Final = (
    "| round | fault | for s | node | was | without a commit s | in sync again s |\n"
    "| --- | --- | --- | --- | --- | --- | --- |"
)


class Campaign:
    """One run on one cluster."""

    def __init__(self, cluster: Cluster, view: ClusterView, seed: int, tell: Tell) -> None:
        self.outcomes: list[Outcome] = []
        self._cluster = cluster
        self._view = view
        self._tell = tell
        self._addresses: list[Address] = [(LOOPBACK, node.port) for node in cluster.nodes]
        self._create_topics()
        self._load = Load(self._addresses, cluster.bootstrap, random.Random(seed))

    def run(self, rounds: Sequence[Round]) -> list[str]:
        """All rounds; returns everything that must not be, which is nothing."""
        self._tell(HEAD)
        with self._load:
            self._await_progress()
            for number, planned in enumerate(rounds, 1):
                self.outcomes.append(self._round(number, planned))
                self._tell(str(self.outcomes[-1]))
        await_none(self._wants, "all in sync")
        return self._judge()

    def _round(self, number: int, planned: Round) -> Outcome:
        victim = self._victim(planned)
        groups = self._groups_of(victim)
        is_both = self._view.controller() == victim and bool(groups)
        moment = time.monotonic()
        self._hurt(victim, planned, groups)
        back = time.monotonic()
        await_none(self._wants, "all in sync again")
        healed = time.monotonic()
        self._await_progress()
        outage = self._outage(groups, moment)
        return Outcome(number, planned, victim, is_both, outage, healed - back)

    def _victim(self, planned: Round) -> int:
        if planned.aim is Aim.BOTH:
            return eventually(self._ruling_coordinator, what="a controller that coordinates")
        nodes = list(range(1, NODES + 1))
        if planned.aim is Aim.COORDINATOR:
            nodes = [node for node in nodes if self._groups_of(node)]
        return nodes[int(planned.luck * len(nodes))]

    def _ruling_coordinator(self) -> int:
        controller = self._view.controller()
        return controller if controller and self._groups_of(controller) else 0

    def _groups_of(self, node: int) -> list[str]:
        leaders = self._view.leaders(OFFSETS_TOPIC)
        groups = self._load.groups
        return [one for one in groups if leaders[group_partition(one, len(leaders))] == node]

    def _hurt(self, victim: int, planned: Round, groups: Sequence[str]) -> None:
        node = self._cluster.node(victim)
        if planned.fault is Fault.STOP:
            node.pause()
            time.sleep(planned.seconds)
            late = LateQuestions(self._addresses[victim - 1], OFFSETS, groups) if groups else None
            node.resume()
            if late is not None:
                reads, codes = late.answers()
                self._load.late.append(reads)
                self._load.late_codes += codes
            return
        if planned.fault is Fault.KILL:
            node.kill()
        else:
            node.ask_to_stop()
            node.wait_stopped()
            assert node.exit_code == 0, f"node {victim} ended with {node.exit_code}"
        time.sleep(planned.seconds)
        self._cluster.restart(victim)

    def _outage(self, groups: Sequence[str], moment: float) -> float:
        longest = 0.0
        for one in self._load.committers:
            if one.group in groups:
                moments = [moment, *(at for at, _ in one.answered[-5_000:] if at > moment)]
                gaps = (later - earlier for earlier, later in itertools.pairwise(moments))
                longest = max(longest, *gaps)
        return longest

    def _await_progress(self) -> None:
        before = self._load.progress()

        def waiting() -> list[str]:
            now = self._load.progress()
            return [name for name, done in before.items() if now[name] <= done]

        await_none(waiting, "every client goes on")

    def _wants(self) -> list[str]:
        found = self._view.wants([OFFSETS, RECORDS, OFFSETS_TOPIC])
        return found + [f"{NODES} nodes"] * (len(self._view.brokers()) < NODES)

    def _create_topics(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap})
        wanted = [NewTopic(OFFSETS, 1, NODES)]
        wanted.append(NewTopic(RECORDS, PARTITIONS, NODES, config={"retention.ms": "-1"}))
        for created in admin.create_topics(wanted).values():
            created.result(RECOVERY_S)

    def _judge(self) -> list[str]:
        bootstrap, groups = self._cluster.bootstrap, self._load.groups
        everything = dict.fromkeys(range(PARTITIONS), "beginning")
        rows = Confluent().read(bootstrap, RECORDS, everything)
        log: dict[Place, bytes] = {(one.partition, one.offset): one.value or b"" for one in rows}
        final = {group: self._committed(group, OFFSETS, [0])[0] for group in groups}
        members = self._committed(MEMBERS, RECORDS, list(range(PARTITIONS)))
        self._tell(self._load.totals() + f", {len(log)} in the log")
        return self._load.findings(final, members, log) + differences(self._copies())

    def _committed(self, group: str, topic: str, partitions: list[int]) -> dict[int, Read]:
        def ask() -> dict[int, Read] | None:
            began = time.monotonic()
            try:
                with RawConnection(self._addresses[0]) as link:
                    at = find_coordinator(link, group)
                with RawConnection((at.host, at.port)) as link:
                    found, code = fetch_offsets(link, group, topic, partitions)
            except (OSError, Closed):
                return None
            if code != NO_ERROR:
                return None
            ended = time.monotonic()
            return {index: Read(one.offset, began, ended, "last") for index, one in found.items()}

        return eventually(ask, what=f"what {group} committed") or {}

    def _copies(self) -> dict[str, dict[int, bytes]]:
        """The bytes of every replica; nobody writes any more."""
        return {
            f"node {node.id}": {
                index: log_bytes(node.directory / f"data/{RECORDS}-{index}")
                for index in range(PARTITIONS)
            }
            for node in self._cluster.nodes
        }


def log_bytes(directory: Path) -> bytes:
    """All segments of a log, one after the other."""
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def await_none(missing: Callable[[], Sequence[str]], what: str) -> None:
    """Wait until nothing is missing; the failure says what was."""
    last: Sequence[str] = ()

    def is_there() -> bool:
        nonlocal last
        last = missing()
        return not last

    try:
        eventually(is_there, within_s=RECOVERY_S, what=what)
    except TooLate as late:
        raise TooLate(f"{late}; missing: {last}") from late


@dataclass(slots=True)
class Report:
    """What a whole run found."""

    outcomes: list[Outcome] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

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
                rows.append(
                    f"| {fault.value} | {'both' if is_both else 'coordinator'} | {len(found)} | "
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
) -> Report:
    """A whole run on a new cluster; whatever fails comes with seed, schedule and last log lines."""
    planned = schedule(seed, rounds, longest_pause_s)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="chaos-") as directory:
        data = Path(directory)
        cluster = Cluster(NODES, data, settings={**SETTINGS, **(settings or {})})
        with cluster, ClusterView(cluster.zookeeper) as view:
            campaign = Campaign(cluster, view, seed, tell)
            report.outcomes = campaign.outcomes
            try:
                report.findings = campaign.run(planned)
                report.findings += serious(data)
            except BaseException:
                tell(post_mortem(data, seed, planned))
                raise
            if report.findings:
                tell(post_mortem(data, seed, planned))
                tell("\n".join(report.findings[:MOST_SHOWN]))
    return report


def serious(data: Path) -> list[str]:
    """Errors and tracebacks in the nodes' logs."""
    return [
        f"{log.parent.name}: {line}"
        for log in sorted(data.glob("node-*/node.log"))
        for line in log.read_text(errors="replace").splitlines()
        if " E barnabas" in line or line.startswith("Traceback")
    ]


def post_mortem(data: Path, seed: int, planned: Sequence[Round]) -> str:
    """What is needed to see why a run failed."""
    parts = [f"seed {seed}", *(f"{number} {one}" for number, one in enumerate(planned, 1))]
    for log in sorted(data.glob("node-*/node.log")):
        parts += ["", log.parent.name, *log.read_text(errors="replace").splitlines()[-LAST_LINES:]]
    return "\n".join(parts)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-beacons", action="store_true")
    given = parser.parse_args()
    settings = {"beacon.enable": "false"} if given.no_beacons else {}

    def tell(line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the command's output

    report = run(given.rounds, given.seed, tell, settings=settings)
    tell(report.summary())
    tell(f"{len(report.findings)} findings")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
