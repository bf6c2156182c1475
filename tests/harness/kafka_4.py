"""One node of Apache Kafka 4, which needs no ZooKeeper (KRaft): broker and controller in one."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from barnabas.console.development.ports import LOOPBACK
from benchmarks.apache_kafka_4 import VERSION, kafka_4_node
from tests.harness.raw_connection import Address

from .deployments import SMALL_JVM
from .needs import maven_jars
from .waiting import eventually


class Kafka4:
    """The node, which serves; implements Deployment, but for what has to do with ZooKeeper."""

    zookeeper = ""

    def __init__(self, settings: Mapping[str, str]) -> None:
        jars = maven_jars("kafka_2.13", VERSION)
        self._directory = tempfile.TemporaryDirectory(prefix="barnabas-kafka-4-")
        place = Path(self._directory.name)
        self._node = kafka_4_node(jars, place, settings=settings, jvm_flags=SMALL_JVM)
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
