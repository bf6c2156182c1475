"""Apache Kafka as a rival: its jars through Maven's own client, one node as a child process.

Source: kafka-run-class.sh and config/server.properties of 3.9 for the flags its users run it with.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from barnabas.console.development.java import find_java
from benchmarks import download_cache
from benchmarks.download_cache import fetched
from benchmarks.server_process import ServerFailed, ServerProcess, write_properties

KAFKA_VERSION = "3.9.1"
CACHE = download_cache.CACHE / f"kafka-{KAFKA_VERSION}"

DEPENDENCIES = (
    ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
    ("org.apache.zookeeper", "zookeeper", "3.8.4"),
    ("org.slf4j", "slf4j-reload4j", "1.7.36"),
)

JVM_FLAGS = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

_MVN_S = 900
IMPATIENT = (
    "-Dmaven.wagon.http.connectionTimeout=15000",
    "-Daether.connector.connectTimeout=15000",
)
"""Where no repository can be reached, Maven says so within a minute, in old and new releases."""

LOG4J = """log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def kafka_jars(libs: Path | None = None) -> Path:
    """The folder that holds Kafka's jars; fetched once into the cache when ``libs`` is None.

    Raises ServerFailed when there is no Maven, or when it fails.
    """
    wanted = f"kafka_2.13-{KAFKA_VERSION}.jar"
    if libs is None:
        return fetch_jars(CACHE / "libs", DEPENDENCIES, wanted)
    if not (libs / wanted).exists():
        raise ServerFailed(f"{libs} holds no {wanted}")
    return libs


def fetch_jars(folder: Path, artifacts: Sequence[tuple[str, str, str]], wanted: str) -> Path:
    """``folder`` with artifacts, each a group, a name and a version, and all that they need.

    It is left alone when it holds a file that matches ``wanted``. Raises ServerFailed when there is
    no Maven, or when it fails.
    """
    return fetched(folder, wanted, partial(_copy_dependencies, artifacts))


def _copy_dependencies(artifacts: Sequence[tuple[str, str, str]], folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise ServerFailed("Apache Kafka is fetched with mvn: apt-get install maven, or --libs DIR")
    project = folder.parent / "pom.xml"
    project.write_text(_project(artifacts))
    fetch = ["mvn", "-q", "-B", *IMPATIENT, "-f", str(project), "dependency:copy-dependencies"]
    try:
        subprocess.run(
            [*fetch, f"-DoutputDirectory={folder}"], check=True, stdout=sys.stderr, timeout=_MVN_S
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as failure:
        raise ServerFailed(f"mvn could not fetch {':'.join(artifacts[0])}") from failure


def _project(artifacts: Sequence[tuple[str, str, str]]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>barnabas</groupId><artifactId>rival</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def class_path(jars: Path) -> str:
    """Every jar but the second logging back end, which Kafka's own distribution leaves out too."""
    return ":".join(str(jar) for jar in sorted(jars.glob("*.jar")) if "logback" not in jar.name)


def kafka_node(
    jars: Path,
    directory: Path,
    zookeeper: str,
    *,
    node_id: int = 1,
    settings: Mapping[str, str] | None = None,
    jvm_flags: Sequence[str] = JVM_FLAGS,
) -> ServerProcess:
    """A Kafka node that keeps everything below ``directory``, not yet started.

    ``settings`` override the properties given here.
    """
    properties = {
        "broker.id": str(node_id),
        "zookeeper.connect": zookeeper,
        "log.dirs": str(directory / "data"),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    file, port, others = write_properties(directory, properties)
    logging = directory / "log4j.properties"
    logging.write_text(LOG4J)
    command = [str(find_java()), *jvm_flags]
    command += [f"-Dlog4j.configuration=file:{logging}", "-cp", class_path(jars)]
    command += ["kafka.Kafka", str(file)]
    return ServerProcess(f"kafka-{node_id}", command, port, directory / "node.log", others=others)


if __name__ == "__main__":
    print(kafka_jars())
