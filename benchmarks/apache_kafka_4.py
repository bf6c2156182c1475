"""One node of Apache Kafka 4, which needs no ZooKeeper (KRaft): broker and controller in one.

Source: config/server.properties and kafka-storage.sh of 4.1.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.console.development.java import find_java
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.apache_kafka import JVM_FLAGS, class_path, fetch_jars
from benchmarks.download_cache import CACHE
from benchmarks.server_process import ServerFailed, ServerProcess, write_properties

VERSION: Final = "4.1.0"
_FORMAT_S: Final = 120.0
_SLF4J: Final = ("org.slf4j", "slf4j-nop", "1.7.36")


def kafka_4_jars() -> Path:
    """The folder that holds its jars, fetched once; raises ServerFailed without Maven."""
    name = "kafka_2.13"
    artifacts = (("org.apache.kafka", name, VERSION), _SLF4J)
    return fetch_jars(CACHE / f"{name}-{VERSION}" / "libs", artifacts, f"{name}-{VERSION}.jar")


def kafka_4_node(
    jars: Path,
    directory: Path,
    *,
    settings: Mapping[str, str] | None = None,
    jvm_flags: Sequence[str] = JVM_FLAGS,
) -> ServerProcess:
    """A node that keeps everything below ``directory``, formatted, not yet started.

    ``settings`` override the properties given here. Raises ServerFailed.
    """
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
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        **(settings or {}),
    }
    file, *_ = write_properties(directory, properties)
    java = [str(find_java()), *jvm_flags, "-cp", class_path(jars)]
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    format_disk = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(file)]
    done = subprocess.run(
        [*java, *format_disk], capture_output=True, text=True, timeout=_FORMAT_S, check=False
    )
    if done.returncode:
        raise ServerFailed(done.stdout + done.stderr)
    return ServerProcess("kafka-4", [*java, "kafka.Kafka", str(file)], port, directory / "node.log")
