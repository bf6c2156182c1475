"""A cluster from what ``barnabas security init`` wrote: ZooKeeper, nodes and users."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from barnabas.client.zookeeper.identity import ZooKeeperLogin
from barnabas.console.__main__ import main
from barnabas.console.development.ports import LOOPBACK, adjacent_free_ports, free_ports
from barnabas.console.development.zookeeper_security import client_jaas
from benchmarks.barnabas_node import ROOT
from benchmarks.server_process import ServerProcess
from tests.harness.secured_zookeeper import require_sasl
from tests.harness.waiting import eventually

START_S: Final = 240.0
PATIENT_MS: Final = "120000"
USER: Final = "alice"
STEADY_LINES: Final = (
    "beacon.timeout.ms=5000\nzookeeper.session.timeout.ms=10000\n"
    "group.initial.rebalance.delay.ms=0\n"
)
"""So that nothing moves on a busy machine (docs/beacons.md), and groups form at once."""


NOT_YET: Final = (KafkaError._PARTIAL, KafkaError._TIMED_OUT, KafkaError._TRANSPORT)
"""What librdkafka says of a node that listens and does not serve for a minute."""


class SecuredCluster:
    """Nodes by number from 1; ``directory`` is what the command made.

    ``with_certificates``: users may show a certificate in place of their password.
    ``zookeeper_users`` may log in to ZooKeeper beside the nodes, each by this password;
    ``zookeeper_servers`` are so many.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int,
        users: Sequence[str] = (USER,),
        *,
        with_certificates: bool = False,
        zookeeper_users: Mapping[str, str] | None = None,
        zookeeper_servers: int = 1,
    ) -> None:
        require_sasl()
        self.directory = directory
        ports = free_ports(3 * zookeeper_servers)
        self._zookeeper_ports = ports[:zookeeper_servers]
        self._quorum_ports = ports[zookeeper_servers:]
        self._ports_each = 3 if with_certificates else 2
        self._port = adjacent_free_ports(self._ports_each * nodes)
        self._count = nodes
        self._users = users
        self._with_certificates = with_certificates
        self._zookeeper_users = zookeeper_users or {}
        self.nodes: dict[int, ServerProcess] = {}
        self._zookeepers: list[ServerProcess] = []

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{LOOPBACK}:{self._port_of(number + 1)}" for number in range(self._count))

    @property
    def certificates_bootstrap(self) -> str:
        """The first node's listener that asks for a certificate."""
        return f"{LOOPBACK}:{self._port + 2}"

    @property
    def init_words(self) -> list[str]:
        """The command that makes everything, and makes it again without harm."""
        words = ["security", "init", str(self.directory), "--nodes", str(self._count)]
        words += ["--port", str(self._port)]
        words += [word for user in self._users for word in ("--user", user)]
        words += ["--client-certificates"] * self._with_certificates
        return [*words, "--zookeeper", f"{self.zookeeper_servers}/kafka"]

    @property
    def zookeeper_port(self) -> int:
        """Of the first server."""
        return self._zookeeper_ports[0]

    @property
    def zookeeper_servers(self) -> str:
        """As ``zookeeper.connect`` has them, without the path."""
        return ",".join(f"{LOOPBACK}:{port}" for port in self._zookeeper_ports)

    def __enter__(self) -> Self:
        assert main(self.init_words) == 0
        try:
            for number in range(1, self._count + 1):
                self._steady(number)
            self._let_in(self._zookeeper_users)
            self.start_zookeeper()
            users = ["security", "users", str(self.directory), "--timeout-ms", PATIENT_MS]
            assert main(users) == 0
            for number in range(1, self._count + 1):
                self.start(number)
            eventually(self._is_complete, within_s=START_S, what="admin sees every node")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def properties(self, number: int) -> Path:
        return self.directory / "nodes" / f"node-{number}" / "server.properties"

    def client(self, user: str, name: str) -> Path:
        """One of a user's files."""
        return self.directory / "clients" / user / name

    def librdkafka(self, user: str = USER) -> dict[str, Any]:
        """Settings of confluent-kafka, as they stand in the file for kcat."""
        lines = self.client(user, "librdkafka.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if not line.startswith("#"))

    def python(self, user: str = USER) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.client(user, "python.json").read_text())
        return found

    def command(self, *words: str, user: str = "admin") -> int:
        """``barnabas`` with these words, as that user."""
        config = str(self.client(user, "client.properties"))
        return main([*words, "--command-config", config, "--timeout-ms", PATIENT_MS])

    def start_zookeeper(self) -> None:
        """The command that init prints, for each server."""
        for number in range(1, len(self._zookeeper_ports) + 1):
            self._zookeepers.append(self._zookeeper(number))
            self._zookeepers[-1].launch()
        for server in self._zookeepers:
            server.wait_until_listening(START_S)

    def _zookeeper(self, number: int) -> ServerProcess:
        folder, port = self.directory / "zookeeper", self._zookeeper_ports[number - 1]
        words = ["zookeeper", "--port", str(port), "--tick", "500"]
        words += ["--jaas", str(folder / "jaas.conf"), "--require-login"]
        words += ["--tls-keystore", str(folder / "keystore.pem")]
        words += ["--tls-truststore", str(folder / "truststore.pem")]
        if len(self._zookeeper_ports) == 1:
            words += ["--data", str(folder / "data")]
        else:
            pairs = zip(self._quorum_ports[::2], self._quorum_ports[1::2], strict=True)
            every = ";".join(f"{LOOPBACK}:{quorum}:{election}" for quorum, election in pairs)
            words += ["--data", str(folder / f"data-{number}")]
            words += ["--id", str(number), "--servers", every]
        module = ["-m", "barnabas.console", *words]
        return _process(f"zookeeper-{number}", module, port, folder / f"zk-{number}.log")

    def zookeeper_settings(self, user: str, password: str) -> dict[str, str]:
        """How one of ``zookeeper_users`` reaches ZooKeeper, for a consumer.properties."""
        login = ZooKeeperLogin("sasl", user, password)
        return {
            "zookeeper.connect": f"{self.zookeeper_servers}/kafka",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.protocol": "TLSv1.3",
            "zookeeper.ssl.truststore.location": str(self.client(USER, "truststore.pem")),
            "zookeeper.jaas.config": client_jaas(login),
        }

    def _let_in(self, users: Mapping[str, str]) -> None:
        """As docs/security.md says: one more word for each in ZooKeeper's JAAS file."""
        file = self.directory / "zookeeper" / "jaas.conf"
        words = "".join(f' user_{user}="{password}"' for user, password in users.items())
        file.write_text(file.read_text().replace(";\n};", f"{words};\n}};"))

    def start(self, number: int) -> None:
        path = self.properties(number)
        module = ["-m", "barnabas.broker", str(path)]
        node = _process(f"node-{number}", module, self._port_of(number), path.parent / "node.log")
        node.launch()
        self.nodes[number] = node
        node.wait_until_listening(START_S)

    def restart(self, number: int) -> None:
        """In order; returns when the controller has told it of every node."""
        self.nodes.pop(number).stop()
        self.start(number)
        eventually(
            lambda: self._is_complete(f"{LOOPBACK}:{self._port_of(number)}"),
            within_s=START_S,
            what=f"node {number} knows every node",
        )

    def restart_zookeeper(self) -> None:
        """One server after the other."""
        for server in self._zookeepers:
            server.stop()
            server.launch()
            server.wait_until_listening(START_S)

    def change(self, number: int, **settings: str | None) -> None:
        """Write other values into a node's file, for its next start; None takes a line away."""
        path = self.properties(number)
        given = {name.replace("__", "."): text for name, text in settings.items()}
        lines = [
            line for line in path.read_text().splitlines() if line.partition("=")[0] not in given
        ]
        lines += [f"{name}={text}" for name, text in given.items() if text is not None]
        path.write_text("\n".join(lines) + "\n")

    def value(self, number: int, name: str) -> str:
        """What a node's file says."""
        lines = self.properties(number).read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)[name]

    def stop(self) -> None:
        for node in self.nodes.values():
            node.stop()
        for server in self._zookeepers:
            server.stop()

    def _port_of(self, number: int) -> int:
        return self._port + self._ports_each * (number - 1)

    def _steady(self, number: int) -> None:
        with self.properties(number).open("a") as file:
            file.write(STEADY_LINES)

    def _is_complete(self, told_by: str | None = None) -> bool:
        """As this node says, or any; one that has just started may know of no node yet."""
        settings = {**self.librdkafka("admin"), "log_level": 0}
        if told_by is not None:
            settings["bootstrap.servers"] = told_by
        try:
            found = AdminClient(settings).list_topics(timeout=60)
        except KafkaException as error:
            if error.args[0].code() not in NOT_YET:
                raise
            return False
        return len(found.brokers) == self._count and found.controller_id > 0


def _process(name: str, words: list[str], port: int, log: Path) -> ServerProcess:
    search_path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))
    command = ["/usr/bin/env", "-u", "PYTHONDONTWRITEBYTECODE", f"PYTHONPATH={search_path}"]
    return ServerProcess(name, [*command, sys.executable, *words], port, log)
