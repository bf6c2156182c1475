"""One node of Apache Kafka 4, which needs no ZooKeeper (KRaft): broker and controller in one."""

from __future__ import annotations

import base64
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from barnabas.console.development.java import find_java
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.apache_kafka import class_path
from benchmarks.server_process import ServerProcess, write_properties
from tests.harness.raw_connection import Address

from .deployments import SMALL_JVM
from .needs import maven_jars
from .waiting import eventually

VERSION: Final = "4.1.0"
_FORMAT_S: Final = 120.0


class Kafka4:
    """The node, which serves; implements Deployment, but for what has to do with ZooKeeper."""

    zookeeper = ""

    def __init__(self, settings: Mapping[str, str]) -> None:
        jars = maven_jars("kafka_2.13", VERSION)
        self._directory = tempfile.TemporaryDirectory(prefix="barnabas-kafka-4-")
        place = Path(self._directory.name)
        port, controller = free_ports(2)
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "port": str(port),
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "log.dirs": str(place / "data"),
            **settings,
        }
        file, _ = write_properties(place, properties)
        java = [str(find_java()), *SMALL_JVM, "-cp", class_path(jars)]
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        format_disk = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file)]
        done = subprocess.run(
            [*java, *format_disk], capture_output=True, text=True, timeout=_FORMAT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        self._node = ServerProcess(
            "kafka-4", [*java, "kafka.Kafka", str(file)], port, place / "node.log"
        )
        self._node.start()
        eventually(self._is_up, what="Kafka 4 answers")

    @property
    def bootstrap(self) -> str:
        return self._node.bootstrap

    @property
    def addresses(self) -> Sequence[Address]:
        return [(LOOPBACK, self._node.port)]

    @property
    def pids(self) -> Sequence[int]:
        return [self._node.pid]

    def kill_all(self) -> None:
        self._node.kill()

    def stop_nodes(self) -> None:
        self._node.stop()

    def start_all(self) -> None:
        self._node.start()

    def stop(self) -> None:
        self._node.kill()
        self._directory.cleanup()

    def _is_up(self) -> bool:
        try:
            admin = AdminClient({"bootstrap.servers": self.bootstrap})
            return bool(admin.list_topics(timeout=10).brokers)
        except KafkaException:
            return False
