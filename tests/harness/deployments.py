"""The clusters that interop tests may run against: ours, Apache Kafka's, one started elsewhere.

BARNABAS_INTEROP_SERVER=kafka runs the tests against Apache Kafka 3.9, which must pass them as well:
that shows that a test asks for what Kafka does. BARNABAS_INTEROP_BOOTSTRAP=host:port,... uses a
cluster that runs already, and BARNABAS_INTEROP_ZOOKEEPER names its ZooKeeper.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.node import NodeProcess
from barnabas.console.development.ports import LOOPBACK
from benchmarks.apache_kafka import kafka_node
from benchmarks.server_process import ServerProcess
from tests.harness.raw_connection import Address, Closed, RawConnection, addresses_of

from .client_libraries import ClientLibrary
from .needs import apache_kafka_jars
from .raw_calls import leaders, live_brokers
from .waiting import eventually
from .znodes import registered_brokers

SMALL_JVM: Final = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SESSION_MS: Final = 10_000
"""The longest that the embedded ZooKeeper grants: a JVM may stand still for seconds."""
ANSWER_S: Final = 10.0
"""Who does not answer for so long is asked again."""


class Deployment(Protocol):
    """A running cluster."""

    @property
    def bootstrap(self) -> str:
        """What clients are given."""

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's connection string, chroot included."""

    @property
    def addresses(self) -> Sequence[Address]:
        """Where each node listens."""

    @property
    def pids(self) -> Sequence[int]:
        """The process of each node; none when it was started elsewhere."""

    def kill_all(self) -> None:
        """End every node as kill -9 does."""

    def stop_nodes(self) -> None:
        """End every node in order; ZooKeeper goes on."""

    def start_all(self) -> None:
        """Start every node again; return when each knows all the others."""

    def stop(self) -> None:
        """End everything."""


class OwnCluster:
    """Barnabas, as `barnabas up` starts it."""

    def __init__(
        self, count: int, settings: Mapping[str, str] | None = None, data: Path | None = None
    ) -> None:
        self._cluster = Cluster(count, data, settings=settings).start()

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    @property
    def zookeeper(self) -> str:
        return self._cluster.zookeeper

    @property
    def addresses(self) -> Sequence[Address]:
        return [(LOOPBACK, node.port) for node in self._cluster.nodes]

    @property
    def pids(self) -> Sequence[int]:
        return [node.pid for node in self._cluster.nodes]

    @property
    def nodes(self) -> Sequence[NodeProcess]:
        """Each node, to be stopped and started by itself."""
        return self._cluster.nodes

    @property
    def zookeeper_pid(self) -> int:
        """ZooKeeper's process."""
        pid = self._cluster.zookeeper_pid
        assert pid is not None, "somebody else's ZooKeeper"
        return pid

    @property
    def logs(self) -> Sequence[Path]:
        """What each node writes to its standard output and error."""
        return [node.log for node in self._cluster.nodes]

    def kill_all(self) -> None:
        for node in self._cluster.nodes:
            node.kill()

    def stop_nodes(self) -> None:
        for node in self._cluster.nodes:
            node.ask_to_stop()
        for node in self._cluster.nodes:
            node.wait_stopped()

    def start_all(self) -> None:
        for node in self._cluster.nodes:
            node.spawn()
            node.let_serve()
        for node in self._cluster.nodes:
            node.wait_ready()
        await_complete(self.addresses)

    def stop(self) -> None:
        self._cluster.stop()


class KafkaCluster:
    """Apache Kafka's nodes on an embedded ZooKeeper."""

    def __init__(self, count: int, settings: Mapping[str, str] | None = None) -> None:
        jars = apache_kafka_jars()
        self._directory = tempfile.TemporaryDirectory(prefix="barnabas-kafka-")
        self._zookeeper = EmbeddedZooKeeper().start()
        self._nodes: list[ServerProcess] = [
            kafka_node(
                jars,
                Path(self._directory.name) / f"node-{node_id}",
                self._zookeeper.hosts,
                node_id=node_id,
                settings={"zookeeper.session.timeout.ms": str(SESSION_MS), **(settings or {})},
                jvm_flags=SMALL_JVM,
            )
            for node_id in range(1, count + 1)
        ]
        self.start_all()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self._nodes)

    @property
    def zookeeper(self) -> str:
        return self._zookeeper.hosts

    @property
    def addresses(self) -> Sequence[Address]:
        return [(LOOPBACK, node.port) for node in self._nodes]

    @property
    def pids(self) -> Sequence[int]:
        return [node.pid for node in self._nodes]

    def kill_all(self) -> None:
        for node in self._nodes:
            node.kill()

    def stop_nodes(self) -> None:
        for node in self._nodes:
            node.stop()

    def start_all(self) -> None:
        self._await_expiry()
        for node in self._nodes:
            node.launch()
        for node in self._nodes:
            node.wait_until_listening()
        await_complete(self.addresses)

    def stop(self) -> None:
        for node in self._nodes:
            node.kill()
        self._zookeeper.stop()
        self._directory.cleanup()

    def _await_expiry(self) -> None:
        """Kafka refuses to start while its earlier session lasts; ours waits for that itself."""
        eventually(lambda: not registered_brokers(self.zookeeper), what="sessions expire")


def await_complete(addresses: Sequence[Address]) -> None:
    """Return when every node knows all the others and a controller."""

    def is_complete(address: Address) -> bool:
        try:
            with RawConnection(address, ANSWER_S) as link:
                known, controller = live_brokers(link)
        except (OSError, Closed):
            return False
        return len(known) == len(addresses) and controller in known

    for address in addresses:
        eventually(lambda at=address: is_complete(at), what="every node knows the others")  # type: ignore[misc]


def await_leaders(cluster: Deployment, topic: str, partitions: int) -> dict[int, Address]:
    """Return the leaders of a topic once every node knows them: a creator may hear it earlier."""
    return await_leaders_at(cluster.addresses, topic, partitions)


def await_leaders_at(
    addresses: Sequence[Address], topic: str, partitions: int
) -> dict[int, Address]:
    """The same for the nodes at these addresses."""

    def known_by(address: Address) -> dict[int, Address]:
        try:
            with RawConnection(address, ANSWER_S) as link:
                found = leaders(link, topic)
        except (OSError, Closed):
            return {}
        return found if len(found) >= partitions else {}

    return [
        eventually(lambda at=address: known_by(at), what=f"leaders of {topic}")  # type: ignore[misc]
        for address in addresses
    ][-1]


def create_topic(
    cluster: Deployment, library: ClientLibrary, topic: str, partitions: int, factor: int = 1
) -> dict[int, Address]:
    """Create a topic through a library's admin client; returns its leaders when all know them."""
    library.create_topic(cluster.bootstrap, topic, partitions, factor)
    return await_leaders(cluster, topic, partitions)


class ExternalCluster:
    """A cluster that somebody else runs: nothing of it is started, killed or stopped here."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.zookeeper = os.environ.get("BARNABAS_INTEROP_ZOOKEEPER", "")
        self.pids: Sequence[int] = ()
        self.addresses: Sequence[Address] = addresses_of(bootstrap)

    def kill_all(self) -> None:
        raise NotImplementedError

    def stop_nodes(self) -> None:
        raise NotImplementedError

    def start_all(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Leave it running."""


def is_apache_kafka() -> bool:
    """The tests run against Apache Kafka, started here."""
    return os.environ.get("BARNABAS_INTEROP_SERVER") == "kafka"


def deploy(count: int, settings: Mapping[str, str] | None = None) -> Deployment:
    """Start a cluster of the kind the environment asks for."""
    return KafkaCluster(count, settings) if is_apache_kafka() else OwnCluster(count, settings)
