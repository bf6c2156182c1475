"""Time from a fault to the next acknowledged commit of the same group, beside Kafka if asked.

    python -m benchmarks.failover [--rounds N] [--only kill ...] [--beside N] [--against kafka]
                                  [--json FILE]

Three nodes, three replicas, one ZooKeeper; with ``--beside``, that many partitions of other topics,
which are elected at the same time. Each round waits until everything is in sync and led by its
preferred leader, takes groups that the victim coordinates, hurts it, and measures the longest time
without an acknowledged commit. The committer finds a coordinator within 10 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Final, Protocol, Self

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK
from barnabas.protocol.hashing import group_partition
from benchmarks.apache_kafka import KAFKA_VERSION, kafka_jars, kafka_node
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from benchmarks.eager_client import Address, EagerClient
from benchmarks.eager_committer import EagerCommitter
from benchmarks.report import machine
from benchmarks.server_process import ServerProcess

NODES: Final = 3
TOPIC: Final = "failover"
TOPIC_PARTITIONS: Final = 100
"""Of each other topic."""
NAMES: Final = 24
WATCHED: Final = 3
"""Groups or transactional ids of the victim that are measured in one round."""
WARM_S: Final = 0.5
LIMIT_S: Final = 90.0
SETTINGS: Final = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "12",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "12",
    "zookeeper.session.timeout.ms": "6000",
    "leader.imbalance.check.interval.seconds": "1",
    "leader.imbalance.per.broker.percentage": "0",
}
"""What both servers are given; preferred leaders lead again soon, so that rounds are alike."""
SMALL_JVM: Final = ("-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True)
class NodeFault:
    """What happens to whom."""

    name: str
    signal: signal.Signals
    hits_controller: bool

    def __str__(self) -> str:
        """As a row of the table names it."""
        return self.name


FAULTS: Final = (
    NodeFault("kill", signal.SIGKILL, hits_controller=False),
    NodeFault("kill-controller", signal.SIGKILL, hits_controller=True),
    NodeFault("term", signal.SIGTERM, hits_controller=False),
    NodeFault("term-controller", signal.SIGTERM, hits_controller=True),
    NodeFault("stop", signal.SIGSTOP, hits_controller=False),
    NodeFault("stop-controller", signal.SIGSTOP, hits_controller=True),
)


@dataclass(frozen=True, slots=True)
class Coordination:
    """Who is coordinated, and by the leaders of which topic."""

    state_topic: str
    make: Callable[[Sequence[Address], str, int], EagerClient]
    """A client by addresses, name, and a partition of the topic that the victim does not lead."""


GROUP_COORDINATION: Final = Coordination(
    OFFSETS_TOPIC, lambda addresses, name, _: EagerCommitter(addresses, name, TOPIC)
)


class Servers(Protocol):
    """A running cluster of either kind."""

    name: str
    zookeeper: str
    addresses: Sequence[Address]
    """Where nodes 1, 2, ... listen."""

    def pid(self, node_id: int) -> int:
        """The node's process."""

    def revive(self, node_id: int, view: ClusterView) -> None:
        """Wait until the node's process has ended, and start it again."""


class Barnabas:
    """Our nodes, as `barnabas up` starts them."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.zookeeper = cluster.zookeeper
        self.addresses: Sequence[Address] = [(LOOPBACK, node.port) for node in cluster.nodes]
        self._cluster = cluster

    def pid(self, node_id: int) -> int:
        """The node's process."""
        return self._cluster.node(node_id).pid

    def revive(self, node_id: int, view: ClusterView) -> None:
        """Start it again; it waits itself until its former session is over."""
        del view
        self._cluster.node(node_id).wait_stopped()
        self._cluster.restart(node_id)


class Kafka:
    """Apache Kafka's nodes."""

    def __init__(self, nodes: Sequence[ServerProcess], zookeeper: str) -> None:
        self.name = f"Apache Kafka {KAFKA_VERSION}"
        self.zookeeper = zookeeper
        self.addresses: Sequence[Address] = [(LOOPBACK, node.port) for node in nodes]
        self._nodes = nodes

    def pid(self, node_id: int) -> int:
        """The node's process."""
        return self._nodes[node_id - 1].pid

    def revive(self, node_id: int, view: ClusterView) -> None:
        """Start it again once its former session is over: it refuses to start before."""
        self._nodes[node_id - 1].wait_or_kill(60.0)
        until(lambda: node_id not in view.brokers(), "its session is over")
        self._nodes[node_id - 1].start()


@contextmanager
def barnabas(name: str, settings: Mapping[str, str]) -> Iterator[Servers]:
    """Three nodes of ours."""
    with Cluster(NODES, settings={**SETTINGS, **settings}) as cluster:
        yield Barnabas(cluster, name)


@contextmanager
def kafka(libs: Path | None) -> Iterator[Servers]:
    """Three nodes of Apache Kafka's on a ZooKeeper of ours."""
    jars = kafka_jars(libs)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="failover-")))
        zookeeper = stack.enter_context(EmbeddedZooKeeper(directory / "zookeeper"))
        nodes = [
            kafka_node(
                jars,
                directory / f"node-{node_id}",
                zookeeper.hosts,
                node_id=node_id,
                settings=SETTINGS,
                jvm_flags=SMALL_JVM,
            )
            for node_id in range(1, NODES + 1)
        ]
        for node in nodes:
            stack.callback(node.kill)
            node.launch()
        for node in nodes:
            node.wait_until_listening()
        yield Kafka(nodes, zookeeper.hosts)


class Clients:
    """Clients on an event loop in a thread of its own, while the ``with`` lasts."""

    def __init__(self, clients: Sequence[EagerClient]) -> None:
        self._clients = clients
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._tasks = [
            asyncio.run_coroutine_threadsafe(one.run(), self._loop) for one in self._clients
        ]
        return self

    def __exit__(self, *exc_info: object) -> None:
        for task in self._tasks:
            task.cancel()
        asyncio.run_coroutine_threadsafe(_turns(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def await_served(self) -> None:
        """Return when each of them was acknowledged something."""
        self._until(lambda: all(one.acknowledged for one in self._clients))

    def await_outages(self, moment: float, victim: Address) -> list[float]:
        """How long each was without an acknowledgement, once all are served elsewhere."""

        def found() -> list[float | None]:
            return [one.outage(moment, victim) for one in self._clients]

        self._until(lambda: None not in found())
        return [outage for outage in found() if outage is not None]

    def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait for it; raises what a client failed with."""

        def is_so_yet() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return is_so()

        until(is_so_yet, "all clients are served")


async def _turns() -> None:
    """Let what was cancelled end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class OutageRow:
    """One kind of fault on one server: all outages, in seconds."""

    server: str
    fault: str
    outages: list[float] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """A row of the table."""
        ordered = sorted(self.outages)
        return (
            f"| {self.server} | {self.fault} | {len(ordered)} | {median(ordered):.2f} | "
            f"{ordered[int(len(ordered) * 0.9)]:.2f} | {ordered[-1]:.2f} |"
        )


HEAD: Final = (
    "| server | fault | outages | median s | p90 s | worst s |\n"
    "| --- | --- | --- | --- | --- | --- |"
)


class FailoverBench:
    """Hurts one cluster, round by round."""

    def __init__(
        self,
        servers: Servers,
        view: ClusterView,
        rng: random.Random,
        coordination: Coordination = GROUP_COORDINATION,
        beside: int = 0,
    ) -> None:
        self._servers = servers
        self._view = view
        self._rng = rng
        self._coordination = coordination
        bootstrap = ",".join(f"{host}:{port}" for host, port in servers.addresses)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        self._beside = [f"beside-{number:03}" for number in range(beside // TOPIC_PARTITIONS)]
        admin.create_topics([NewTopic(TOPIC, NODES, 3)])[TOPIC].result(60)
        for name in self._beside:
            admin.create_topics([NewTopic(name, TOPIC_PARTITIONS, 3)])[name].result(60)
        with Clients([coordination.make(servers.addresses, "any", 0)]) as clients:
            clients.await_served()
        self._names = [f"name-{number}" for number in range(NAMES)]

    def round(self, fault: NodeFault, row: OutageRow) -> None:
        """One fault; raises AssertionError when the cluster does not get over it."""
        until(self._is_at_rest, "everything in sync and led as preferred")
        victim, names = self._victim(fault)
        spared = next(
            index for index, leader in self._view.leaders(TOPIC).items() if leader != victim
        )
        addresses = self._servers.addresses
        eager = [self._coordination.make(addresses, name, spared) for name in names]
        with Clients(eager) as clients:
            clients.await_served()
            time.sleep(WARM_S + self._rng.random())
            moment = time.monotonic()
            os.kill(self._servers.pid(victim), fault.signal)
            found = clients.await_outages(moment, addresses[victim - 1])
        row.outages += found
        for one in eager:
            for code, count in one.codes.items():
                row.codes[code] = row.codes.get(code, 0) + count
        print(f"# {row.server} {fault} node={victim}", *(f"{one:.3f}" for one in found), flush=True)
        if fault.signal is signal.SIGSTOP:
            os.kill(self._servers.pid(victim), signal.SIGCONT)
        else:
            self._servers.revive(victim, self._view)

    def _victim(self, fault: NodeFault) -> tuple[int, list[str]]:
        """A node, and groups or transactional ids that it coordinates."""
        controller = self._view.controller()
        assert controller is not None
        others = [node for node in range(1, NODES + 1) if node != controller]
        victim = controller if fault.hits_controller else self._rng.choice(others)
        leaders = self._view.leaders(self._coordination.state_topic)
        mine = [
            name for name in self._names if leaders[group_partition(name, len(leaders))] == victim
        ]
        return victim, self._rng.sample(mine, WATCHED)

    def _is_at_rest(self) -> bool:
        if len(self._view.brokers()) < NODES or self._view.controller() is None:
            return False
        # One after the other: not all of many are asked about while the first is not at rest.
        topics = [TOPIC, self._coordination.state_topic, *self._beside]
        return not any(self._view.wants([topic], preferred=True) for topic in topics)


def until(is_so: Callable[[], bool], what: str) -> None:
    """Wait for it; raises AssertionError after LIMIT_S."""
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline, f"not within {LIMIT_S:g} s: {what}"
        time.sleep(0.05)


def measure(
    servers: Servers,
    faults: Sequence[NodeFault],
    rounds: int,
    seed: int,
    coordination: Coordination = GROUP_COORDINATION,
    beside: int = 0,
) -> list[OutageRow]:
    """All faults on one cluster, their rounds in turn."""
    rows = [OutageRow(servers.name, fault.name) for fault in faults]
    with ClusterView(servers.zookeeper) as view:
        bench = FailoverBench(servers, view, random.Random(seed), coordination, beside)
        for _ in range(rounds):
            for fault, row in zip(faults, rows, strict=True):
                bench.round(fault, row)
    return rows


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--beside", type=int, default=0, help="partitions of other topics")
    parser.add_argument("--only", nargs="+", choices=[fault.name for fault in FAULTS])
    parser.add_argument(
        "--servers",
        nargs="+",
        choices=("beacons", "sessions", "kafka"),
        default=["beacons", "sessions"],
        help="with beacons, without them, and Apache Kafka",
    )
    parser.add_argument("--against", choices=("kafka",), help="measure Apache Kafka, too")
    parser.add_argument("--libs", type=Path, help="Kafka's jars, instead of fetching them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write every outage")
    return parser.parse_args()


def main() -> None:
    """Measure, and print a table."""
    given = arguments()
    faults = [fault for fault in FAULTS if not given.only or fault.name in given.only]
    starts = {
        "beacons": lambda: barnabas("Barnabas", {}),
        "sessions": lambda: barnabas("Barnabas, no beacons", {"beacon.enable": "false"}),
        "kafka": lambda: kafka(given.libs),
    }
    rows: list[OutageRow] = []
    for name in dict.fromkeys([*given.servers, *filter(None, [given.against])]):
        with starts[name]() as servers:
            rows += measure(servers, faults, given.rounds, given.seed, beside=given.beside)
    print(machine(), HEAD, *rows, sep="\n")
    if given.json:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
