"""Groups of both protocols under faults of members, nodes and ZooKeeper: who owned what when?

    python -m tests.chaos.ownership_campaign [--rounds 60] [--seed 1] [--no-beacons] [--java]
                                             [--plant NAME] [--data DIR] [--json FILE]

Three nodes and a ZooKeeper; a group of the classic protocol, one of the consumer protocol, and one
whose members are of both. Prints a row a round, then what was done and found, and ends with 1 when
anything is amiss. ``--data`` keeps the nodes' logs and a journal of each group; ``--plant`` gives
the nodes a bug (tests/chaos/group_plants.py), which must be found.
Source: docs/spec/consumer-groups.md §2.1 (C12), §5; docs/spec/reliability.md §3 and §4.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final

from kazoo.exceptions import KazooException

from barnabas.console.development.node import NodeProcess
from barnabas.protocol.zookeeper.znodes import broker_path
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from tests.harness.consumer_protocol_clusters import SESSION_MS
from tests.harness.consumer_protocol_clusters import SETTINGS as GROUP_SETTINGS
from tests.harness.coordinators import coordinator
from tests.harness.deployments import OwnCluster, await_complete
from tests.harness.protocol_members import JAVA, Member
from tests.harness.shared_groups import PARTITIONS

from .campaign import SETTINGS as CHAOS_SETTINGS
from .group_plants import BY_NAME, given_to_nodes
from .injectors import expire
from .ownership_groups import KINDS, MEMBERS, PROTOCOLS, ChaosGroup
from .trial import await_none, last_words, serious

NODES: Final = 3
SETTINGS: Final = {
    **GROUP_SETTINGS,
    **CHAOS_SETTINGS,
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
}
LONGER_THAN_A_SESSION_S: Final = SESSION_MS / 1000 + 2.5
NEVER_S: Final = 9.0
"""How long somebody gives up who may take REBALANCE_MS for it."""
REBALANCE_MS: Final = 3_000
MOST_SHOWN: Final = 20

Tell = Callable[[str], None]


class Fault(Enum):
    """What happens in a round, while in every group a member joins and another one leaves."""

    NODE_KILL = "kill -9 of a coordinator"
    NODE_STOP = "SIGSTOP of a coordinator"
    NODE_TERM = "SIGTERM of a coordinator"
    EXPIRED = "a coordinator's session with ZooKeeper is over"
    ZOOKEEPER_STOP = "SIGSTOP of ZooKeeper"
    MID_RECONCILIATION = "kill -9 of a coordinator while a member gives up"
    SLOW_REVOKER = "a member that never gives up"
    MEMBER_KILL = "kill -9 of members"
    MEMBER_STOP = "SIGSTOP of members"


NODE_FAULTS: Final = (
    Fault.NODE_KILL,
    Fault.NODE_STOP,
    Fault.NODE_TERM,
    Fault.EXPIRED,
    Fault.ZOOKEEPER_STOP,
)


def schedule(rounds: int, seed: int) -> list[Fault]:
    """Every kind equally often, in an order that goes by the seed."""
    rng = random.Random(seed)
    found: list[Fault] = []
    while len(found) < rounds:
        some = list(Fault)
        rng.shuffle(some)
        found += some
    return found[:rounds]


@dataclass(slots=True)
class Report:
    """What a run did and found."""

    faults: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    members: Counter[str] = field(default_factory=Counter)
    """By protocol and kind."""
    findings: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, Any]:
        """For a report."""
        return {
            "rounds": self.faults.total(),
            "faults": self.faults,
            "findings": self.findings,
            "figures": {**self.totals, "members by kind": self.members},
        }

    def __str__(self) -> str:
        return (
            f"{self.faults.total()} rounds, {dict(self.totals)}, members {dict(self.members)}, "
            f"{len(self.findings)} findings"
        )


class Campaign:
    """One run on one cluster."""

    def __init__(
        self, cluster: OwnCluster, view: ClusterView, groups: Sequence[ChaosGroup], seed: int
    ) -> None:
        self.report = Report()
        self._cluster = cluster
        self._view = view
        self._groups = groups
        self._random = random.Random(seed)

    def run(self, rounds: Sequence[Fault], tell: Tell) -> Report:
        """All rounds, then the verdict on each group."""
        tell("| round | fault | until all rests, s | records read |\n| --- | --- | --- | --- |")
        self._await_rest()
        for number, fault in enumerate(rounds, 1):
            began = time.monotonic()
            self.report.faults[fault.value] += 1
            self._round(fault)
            self._await_rest()
            read = sum(group.ledger.read() for group in self._groups)
            tell(f"| {number} | {fault.value} | {time.monotonic() - began:.1f} | {read} |")
        for group in self._groups:
            self.report.findings += group.finish()
            self.report.totals += group.counts()
            self.report.members += group.protocols
        return self.report

    def _round(self, fault: Fault) -> None:
        if fault in NODE_FAULTS:
            for group in self._groups:
                group.stir()
            time.sleep(self._random.uniform(0.0, 2.0))  # where in its course the change is hit
            self._hurt(fault, self._random.choice(self._groups))
        elif fault is Fault.MID_RECONCILIATION:
            self._kill_while_one_gives_up(self._random.choice(self._groups))
        elif fault is Fault.SLOW_REVOKER:
            self._let_one_never_give_up(self._random.choice(self._groups))
        elif fault is Fault.MEMBER_KILL:
            for group in self._groups:
                group.join()
                group.kill(group.pick())
        else:
            self._freeze_members()

    # -- nodes and ZooKeeper -------------------------------------------------------------------

    def _coordinator(self, group: ChaosGroup) -> NodeProcess:
        _, port = coordinator(self._cluster.addresses, group.group_id)
        return next(node for node in self._cluster.nodes if node.port == port)

    def _hurt(self, fault: Fault, group: ChaosGroup) -> None:
        if fault is Fault.ZOOKEEPER_STOP:
            self._stop_zookeeper()
            return
        node = self._coordinator(group)
        if fault is Fault.EXPIRED:
            expire(self._cluster.zookeeper, broker_path(node.id))
        elif fault is Fault.NODE_STOP:
            node.pause()
            time.sleep(self._random.uniform(0.3, 10.0))
            node.resume()
        else:
            if fault is Fault.NODE_KILL:
                node.kill()
            else:
                node.stop()
                assert node.exit_code == 0, f"node {node.id} ended with {node.exit_code}"
            time.sleep(self._random.uniform(0.0, 2.0))
            start(node)

    def _stop_zookeeper(self) -> None:
        os.kill(self._cluster.zookeeper_pid, signal.SIGSTOP)
        try:
            time.sleep(self._random.uniform(0.5, 6.0))
        finally:
            os.kill(self._cluster.zookeeper_pid, signal.SIGCONT)

    # -- members -------------------------------------------------------------------------------

    @staticmethod
    def _one_that_gives_up(group: ChaosGroup, **how: Any) -> Member:
        """A slow member that has begun to make room for two others."""
        for _ in range(MEMBERS - 1):
            group.ask_to_leave(group.pick())
        slow = group.join(**how)
        group.await_that(lambda: len(slow.owns()) > PARTITIONS // 3, f"{slow.name} has its share")
        for _ in range(MEMBERS - 1):
            group.join(slow_s=0.0)
        group.await_that(lambda: group.ledger.is_revoking(slow.name), f"{slow.name} gives up")
        return slow

    def _kill_while_one_gives_up(self, group: ChaosGroup) -> None:
        self._one_that_gives_up(group, slow_s=4.0)
        node = self._coordinator(group)
        node.kill()
        start(node)

    def _let_one_never_give_up(self, group: ChaosGroup) -> None:
        slow = self._one_that_gives_up(group, slow_s=NEVER_S, max_poll_ms=REBALANCE_MS)
        group.await_that(
            lambda: not group.ledger.is_revoking(slow.name), f"{slow.name} gave up too late"
        )
        group.kill(slow)

    def _freeze_members(self) -> None:
        frozen = [group.pick() for group in self._groups]
        for group in self._groups:
            group.join()
        for member in frozen:
            member.pause()
        try:
            time.sleep(self._random.choice((2.0, LONGER_THAN_A_SESSION_S)))
        finally:
            for member in frozen:
                member.resume()

    # -- rest ----------------------------------------------------------------------------------

    def _await_rest(self) -> None:
        """All nodes are there, all replicas in sync, and every group is as it should be."""
        await_complete(self._cluster.addresses)
        await_none(self._wants, "all in sync")
        for group in self._groups:
            group.await_rest()

    def _wants(self) -> list[str]:
        try:
            topics = [OFFSETS_TOPIC, *(group.group_id for group in self._groups)]
            found = self._view.wants(topics)
            return found + [f"{NODES} nodes"] * (len(self._view.brokers()) < NODES)
        except KazooException as problem:  # ZooKeeper was hurt: asked again
            return [repr(problem)]


def start(node: NodeProcess) -> None:
    """Start a node again; return when it serves."""
    node.spawn()
    node.let_serve()
    node.wait_ready()


def run(
    rounds: Sequence[Fault],
    seed: int,
    tell: Tell,
    *,
    settings: dict[str, str] | None = None,
    with_java: bool = False,
    plant: str = "",
    data: Path | None = None,
) -> Report:
    """A whole run on a new cluster; whatever fails comes with the last lines of the nodes' logs."""
    kinds = (*KINDS, JAVA) if with_java else KINDS
    with ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="owners-")))
        stack.enter_context(given_to_nodes(plant))
        cluster = OwnCluster(NODES, {**SETTINGS, **(settings or {})}, folder)
        stack.callback(cluster.stop)
        view = stack.enter_context(ClusterView(cluster.zookeeper))
        logs = list(cluster.logs)
        try:
            groups = [
                stack.enter_context(
                    ChaosGroup(
                        cluster, name, random.Random(f"{seed} {name}"), kinds=kinds, journals=folder
                    )
                )
                for name in PROTOCOLS
            ]
            report = Campaign(cluster, view, groups, seed).run(rounds, tell)
            report.findings += serious(logs)
        except BaseException:
            tell("\n".join([f"seed {seed}", *last_words(logs)]))
            raise
        if report.findings and not plant:
            tell("\n".join(last_words(logs)))
    return report


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-beacons", action="store_true")
    parser.add_argument("--java", action="store_true", help="members of Kafka's own client, too")
    parser.add_argument("--plant", choices=sorted(BY_NAME), default="", help="a bug of the nodes")
    parser.add_argument("--data", type=Path, help="keep logs and journals here")
    parser.add_argument("--json", type=Path, help="write counts, figures and findings here")
    given = parser.parse_args()

    def tell(line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the command's output

    report = run(
        schedule(given.rounds, given.seed),
        given.seed,
        tell,
        settings={"beacon.enable": "false"} if given.no_beacons else None,
        with_java=given.java,
        plant=given.plant,
        data=given.data,
    )
    tell(str(report))
    tell("\n".join(report.findings[:MOST_SHOWN]))
    if given.json is not None:
        given.json.write_text(json.dumps(report.counts()))
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
