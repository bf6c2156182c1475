"""ZooKeeper, brokers and coordinators as containers of their own on a network of their own."""

from __future__ import annotations

from typing import Final, Self

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import HealthcheckWaitStrategy

from barnabas.console.container import ADVERTISED_FILE
from barnabas.console.development.ports import LOOPBACK, free_ports
from tests.harness.waiting import TooLate, eventually

CLIENT_PORT: Final = 9092
LAST_LINES: Final = 60
_START_S: Final = 240
_TOLD: Final = "/tmp/advertised"
_PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT,INTERNAL:SASL_PLAINTEXT"


class NodeContainer(DockerContainer):
    """One daemon; ``port`` on the loopback of this machine is its clients' listener."""

    def __init__(
        self, image: str, role: str, number: int, port: int | None, network: Network
    ) -> None:
        self.alias = f"{role}-{number}"
        self.number = number
        self.address = f"{LOOPBACK}:{port}"
        super().__init__(
            image,
            command=role,
            env=_settings(number),
            network=network,
            network_aliases=[self.alias],
            init=True,
        )
        self.ports = {str(CLIENT_PORT): (LOOPBACK, port)}  # type: ignore[dict-item]  # as docker-py
        if port is None:
            self.env[ADVERTISED_FILE] = _TOLD
        else:
            self.env["KAFKA_ADVERTISED_LISTENERS"] = self._advertised(self.address)

    def advertise(self, address: str) -> None:
        """Tell one that was made without a port what clients of this machine are to dial."""
        words = ["sh", "-c", f"echo '{self._advertised(address)}' >{_TOLD}"]
        assert self.get_wrapped_container().exec_run(words).exit_code == 0

    def kill(self) -> None:
        """End its processes as ``docker kill`` does; its data stay."""
        self.get_wrapped_container().kill()

    def pause(self) -> None:
        """Freeze it."""
        self.get_wrapped_container().pause()

    def resume(self) -> None:
        """Let it go on."""
        self.get_wrapped_container().unpause()

    def run_again(self) -> None:
        """Start it after its end, with the data it had; return when it is healthy."""
        self.get_wrapped_container().start()
        self.wait_healthy()

    def restart(self) -> None:
        """Stop it in order and start it again; return when it is healthy."""
        self.get_wrapped_container().restart(timeout=20)
        self.wait_healthy()

    def wait_healthy(self) -> None:
        """Return when its health check says so, whatever it said before.

        The engine calls a container unhealthy as soon as it stops asking it, and so for a moment
        while it stops and starts again: only the end of the time says that it is.
        """
        try:
            eventually(lambda: self._health() == "healthy", within_s=_START_S, what=self.alias)
        except TooLate as late:
            late.add_note("\n".join(self.said().splitlines()[-LAST_LINES:]))
            raise

    def _health(self) -> str:
        container = self.get_wrapped_container()
        container.reload()
        return str(container.attrs["State"]["Health"]["Status"])

    def _advertised(self, address: str) -> str:
        return f"PLAINTEXT://{self.alias}:29092,EXTERNAL://{address},INTERNAL://{self.alias}:29093"

    def said(self) -> str:
        """What it wrote so far."""
        return str(self.get_wrapped_container().logs().decode(errors="replace"))


class ContainerCluster:
    """A ZooKeeper and some daemons; as a context, stopped and removed at its end."""

    def __init__(self, image: str, *, brokers: int, coordinators: int) -> None:
        self._network = Network()
        self._image = image
        ports = free_ports(brokers + coordinators)
        self.zookeeper = DockerContainer(
            image,
            command="zookeeper",
            env={"ZOO_TICK_TIME": "500"},
            network=self._network,
            network_aliases=["zookeeper"],
            init=True,
        ).waiting_for(_healthy())
        self.brokers = [
            NodeContainer(image, "broker", number, ports.pop(), self._network)
            for number in range(1, brokers + 1)
        ]
        self.coordinators = [
            NodeContainer(image, "coordinator", 100 + number, ports.pop(), self._network)
            for number in range(1, coordinators + 1)
        ]

    @property
    def nodes(self) -> list[NodeContainer]:
        """All daemons."""
        return self.brokers + self.coordinators

    @property
    def bootstrap(self) -> str:
        """Where clients on this machine begin."""
        return ",".join(node.address for node in self.nodes)

    def node(self, number: int) -> NodeContainer:
        """The daemon with this node id."""
        return next(node for node in self.nodes if node.number == number)

    def broker_told_later(self, number: int) -> NodeContainer:
        """A broker on any port, which waits for :meth:`NodeContainer.advertise`."""
        return NodeContainer(self._image, "broker", number, None, self._network)

    def __enter__(self) -> Self:
        self._network.create()
        self.zookeeper.start()
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.wait_healthy()
        return self

    def __exit__(self, *_: object) -> None:
        for container in (*self.nodes, self.zookeeper):
            container.stop(force=True, delete_volume=True)
        self._network.remove()


def _healthy() -> HealthcheckWaitStrategy:
    return HealthcheckWaitStrategy().with_startup_timeout(_START_S).with_poll_interval(0.1)


def _settings(number: int) -> dict[str, str]:
    return {
        "KAFKA_BROKER_ID": str(number),
        "KAFKA_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "KAFKA_ZOOKEEPER_SESSION_TIMEOUT_MS": "10000",
        "KAFKA_NODE_ROLES": "broker" if number < 100 else "coordinator",
        "KAFKA_LISTENERS": (
            f"PLAINTEXT://0.0.0.0:29092,EXTERNAL://0.0.0.0:{CLIENT_PORT},INTERNAL://0.0.0.0:29093"
        ),
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": _PROTOCOLS,
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INTERNAL",
        "KAFKA_CLUSTER_SECRET": "of the tests",
        "KAFKA_BEACON_TIMEOUT_MS": "2000",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "6",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "3",
        "KAFKA_DEFAULT_REPLICATION_FACTOR": "2",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }
