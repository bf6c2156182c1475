"""Kafka's own programs in two versions of its Java client: 3.9, and 4.1 which dropped old APIs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from barnabas.console.development.java import find_java
from benchmarks.apache_kafka import class_path

from .kafka_tools import FLAGS, PATIENCE
from .needs import apache_kafka_jars, maven_jars

NEWER: Final = "4.4.0"
VERSIONS: Final = ("3.9.1", NEWER)
TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS: Final = "org.apache.kafka.tools.GetOffsetShell"
VERIFIABLE_PRODUCER: Final = "org.apache.kafka.tools.VerifiableProducer"
VERIFIABLE_CONSUMER: Final = "org.apache.kafka.tools.VerifiableConsumer"
PRODUCER_SPEED: Final = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_SPEED: Final = "org.apache.kafka.tools.ConsumerPerformance"
_WAIT_S: Final = 300


class JavaTools:
    """The programs of one version."""

    def __init__(self, version: str, jars: Path, logging: Path) -> None:
        self.version = version
        self._java = [str(find_java()), *FLAGS, f"-Dlog4j.configuration=file:{logging}"]
        self._java += ["-cp", class_path(jars)]

    @property
    def producer(self) -> str:
        """kafka-console-producer, which has moved."""
        return "kafka.tools.ConsoleProducer" if self.version < "4" else _MOVED_PRODUCER

    def run(self, name: str, *arguments: str, given: str = "") -> str:
        """What a program prints; fails when it does."""
        done = subprocess.run(
            [*self._java, name, *PATIENCE.get(name, ()), *arguments],
            input=given,
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, name: str, *arguments: str) -> subprocess.Popen[str]:
        """A program that goes on until it is terminated."""
        pipe = subprocess.PIPE
        argv: Sequence[str] = [*self._java, name, *arguments]
        return subprocess.Popen(argv, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


_MOVED_PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"


def _jars(version: str) -> Path:
    """Where the programs of a version are; skips the test where they cannot be had."""
    return maven_jars("kafka-tools", version) if version == NEWER else apache_kafka_jars()


@pytest.fixture(params=[VERSIONS[0], pytest.param(VERSIONS[1], marks=pytest.mark.nightly)])
def java(request: pytest.FixtureRequest, tmp_path: Path) -> JavaTools:
    """Kafka's programs, in each version in turn; the newer ones at night."""
    logging = tmp_path / "log4j.properties"
    logging.write_text("log4j.rootLogger=OFF\n")
    return JavaTools(request.param, _jars(request.param), logging)


def complaints(stderr: str, *expected: str) -> list[str]:
    """What Kafka's tool said, without what its logging and Java say of themselves."""
    usual = ("SLF4J", "log4j", "WARNING: ", *expected)
    return [line for line in stderr.splitlines() if line and not line.startswith(usual)]
