"""A cluster on a ZooKeeper that can be stalled, restarted and killed, with steady clients.

For the benchmark and the tests of what a ZooKeeper in trouble costs.
Source: docs/spec/reliability.md §3.1 (c').
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from barnabas.console.development.ports import LOOPBACK
from benchmarks.apache_kafka import KAFKA_VERSION, kafka_node
from benchmarks.barnabas_node import barnabas_node
from benchmarks.cluster_view import OFFSETS_TOPIC, ClusterView
from benchmarks.server_process import ServerProcess
from benchmarks.slow_disk import SlowDisk
from benchmarks.steady_clients import Address, SteadyClients
from benchmarks.zookeeper_servers import ZooKeepers

TOPIC: Final = "stalls"
PARTITIONS: Final = 2
GROUPS: Final = tuple(f"group-{number}" for number in range(6))
OFFSETS_PARTITIONS: Final = 6
SESSION_MS: Final = 18_000
WAIT_S: Final = 120.0
T = TypeVar("T")

SMALL_JVM: Final = ("-Xms256m", "-Xmx512m", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True)
class ClusterKind:
    """Which servers, how many, and how leases come."""

    nodes: int
    beacons: bool = True
    kafka_jars: Path | None = None
    """Apache Kafka's, which is started from there."""

    def __str__(self) -> str:
        """As a table names it."""
        if self.kafka_jars is not None:
            return f"Apache Kafka {KAFKA_VERSION}"
        return "beacons" if self.beacons else "no beacons"

    def servers(
        self, directory: Path, zookeeper: str, settings: Mapping[str, str]
    ) -> list[ServerProcess]:
        """The nodes, not yet started."""
        factor = str(self.nodes)
        given = {
            "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
            "offsets.topic.replication.factor": factor,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
            **settings,
        }
        if self.kafka_jars is None:
            given["cluster.secret"] = "any"
            given["beacon.enable"] = str(self.beacons).lower()
        found = []
        for node_id in range(1, self.nodes + 1):
            home = directory / f"node-{node_id}"
            found.append(
                barnabas_node(home, zookeeper, node_id=node_id, settings=given)
                if self.kafka_jars is None
                else kafka_node(
                    self.kafka_jars,
                    home,
                    zookeeper,
                    node_id=node_id,
                    settings=given,
                    jvm_flags=SMALL_JVM,
                )
            )
        return found


@dataclass(frozen=True, slots=True)
class Site:
    """A running cluster whose clients all go on."""

    kind: ClusterKind
    zookeepers: ZooKeepers
    servers: Sequence[ServerProcess]
    clients: SteadyClients

    def await_rest(self) -> None:
        """All are registered, in sync and, with beacons, vote; and every client goes on."""
        until(self._is_at_rest, "all are in sync")
        self.await_progress()

    def await_progress(self, count: int = 10) -> None:
        """Every client has had so many successes since now."""
        marks = self.clients.marks()
        until(lambda: self.clients.all_went_on(marks, count), "every client goes on")

    def judge(self) -> list[str]:
        """What was acknowledged and is lost; the clients write no more after this."""
        self.clients.stop_writing()
        until(self.clients.has_read_all, "all is read")
        return self.clients.violations()

    def _is_at_rest(self) -> bool:
        everybody = set(range(1, self.kind.nodes + 1))
        try:
            with ClusterView(self.zookeepers.hosts) as view:
                if view.brokers() != everybody or view.wants([TOPIC, OFFSETS_TOPIC]):
                    return False
                votes = self.kind.kafka_jars is None and self.kind.beacons
                return not votes or set(view.voters()) == everybody
        except (KazooException, KazooTimeoutError):
            return False


@contextmanager
def running(
    kind: ClusterKind,
    zookeepers: ZooKeepers,
    directory: Path,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Site]:
    """Start the nodes below ``directory`` and the clients; the servers of ZooKeeper run."""
    servers = kind.servers(directory, zookeepers.hosts, settings or {})
    with ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.launch()
        for server in servers:
            server.wait_until_listening()
        addresses: list[Address] = [(LOOPBACK, server.port) for server in servers]
        _create_topic(addresses, kind.nodes)
        clients = stack.enter_context(SteadyClients(addresses, TOPIC, GROUPS, PARTITIONS))
        site = Site(kind, zookeepers, servers, clients)
        site.await_rest()
        yield site


def _create_topic(addresses: Sequence[Address], factor: int) -> None:
    """Once all nodes are known to each other: a copy is on every one."""
    bootstrap = ",".join(f"{host}:{port}" for host, port in addresses)
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def is_complete() -> bool:
        return len(admin.list_topics(timeout=WAIT_S).brokers) == factor

    until(is_complete, "all nodes are known")
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, factor)])[TOPIC].result(WAIT_S)


@dataclass(frozen=True, slots=True)
class ZooKeeperFault:
    """What happens to ZooKeeper; ``strike`` returns when it serves again."""

    name: str
    strike: Callable[[Site], None]

    def __str__(self) -> str:
        """As a table names it."""
        return self.name


def _start_another(site: Site) -> None:
    del site
    with ZooKeepers():
        pass


def stall(seconds: float) -> ZooKeeperFault:
    """All servers stand still for at least so long, and until every client got on meanwhile."""

    def strike(site: Site) -> None:
        marks = site.clients.marks()
        site.zookeepers.pause()
        try:
            time.sleep(seconds)
            until(lambda: site.clients.all_went_on(marks), "every client goes on in a stall")
        finally:
            site.zookeepers.resume()

    return ZooKeeperFault(f"SIGSTOP {seconds:g} s", strike)


def outage(seconds: float) -> ZooKeeperFault:
    """All servers stand still for so long, whatever comes of it."""

    def strike(site: Site) -> None:
        site.zookeepers.pause()
        try:
            time.sleep(seconds)
        finally:
            site.zookeepers.resume()

    return ZooKeeperFault(f"SIGSTOP {seconds:g} s", strike)


def frozen_disk(disk: SlowDisk, seconds: float) -> ZooKeeperFault:
    """Nothing is written for so long: ZooKeeper hears its clients, and answers them later."""
    return ZooKeeperFault(f"disk stands still {seconds:g} s", lambda _: disk.stand_still(seconds))


def slow_disk(disk: SlowDisk, seconds: int) -> ZooKeeperFault:
    """For so long a write gets through once a second, as behind other writers."""
    return ZooKeeperFault(f"slow disk {seconds} s", lambda _: disk.stand_still(0.95, 0.05, seconds))


def _restart(site: Site) -> None:
    site.zookeepers.restart()


def _lose_server(*, leads: bool) -> Callable[[Site], None]:
    def strike(site: Site) -> None:
        victim = until(lambda: site.zookeepers.one(leads=leads), "a leader and followers")
        victim.kill()
        site.await_progress()
        victim.restart()

    return strike


def frozen_server(seconds: float, *, leads: bool) -> ZooKeeperFault:
    """One of three servers stands still for longer than a session: its clients must leave it."""

    def strike(site: Site) -> None:
        victim = until(lambda: site.zookeepers.one(leads=leads), "a leader and followers")
        victim.pause()
        try:
            time.sleep(seconds)
            site.await_progress()
        finally:
            victim.resume()

    return ZooKeeperFault(
        f"{'leader' if leads else 'follower'} of three frozen {seconds:g} s", strike
    )


ANOTHER: Final = ZooKeeperFault("none: an unused ZooKeeper starts", _start_another)
"""What is measured beside it is what this machine, not ZooKeeper, does to clients in a restart."""
RESTART: Final = ZooKeeperFault("restart", _restart)
FOLLOWER_KILLED: Final = ZooKeeperFault("follower of three killed", _lose_server(leads=False))
LEADER_KILLED: Final = ZooKeeperFault("leader of three killed", _lose_server(leads=True))


def until(ask: Callable[[], T | None], what: str) -> T:
    """Ask until the answer is true, and return it; raises AssertionError after WAIT_S."""
    deadline = time.monotonic() + WAIT_S
    while not (found := ask()):
        assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}"
        time.sleep(0.05)
    return found
