"""Kafka's own command line, from its own jars, as a fixture."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Final

import pytest

from barnabas.console.development.java import find_java
from benchmarks.apache_kafka import class_path

from .needs import apache_kafka_jars

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
TRANSACTIONS: Final = "org.apache.kafka.tools.TransactionsCommand"
PRODUCER: Final = "kafka.tools.ConsoleProducer"
CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
ELECTIONS: Final = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGNMENTS: Final = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS: Final = "org.apache.kafka.tools.LogDirsCommand"
DUMP: Final = "kafka.tools.DumpLogSegments"
PATIENCE: Final = {GROUPS: ("--timeout", "120000")}
"""What a tool is given that gives up within seconds of its own accord, by its class."""
_WAIT_S: Final = 300
FLAGS: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

Tool = Callable[..., str]
"""Runs one tool by its class with its arguments; returns what it printed, or fails the test."""


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    """Kafka's tools; without the jars the test is skipped, and the report says so."""
    jars = apache_kafka_jars()
    logging = tmp_path_factory.mktemp("tools") / "log4j.properties"
    logging.write_text("log4j.rootLogger=OFF\n")

    def run(name: str, *arguments: str, given: str = "") -> str:
        command = [str(find_java()), *FLAGS, f"-Dlog4j.configuration=file:{logging}"]
        command += ["-cp", class_path(jars), name, *PATIENCE.get(name, ()), *arguments]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=_WAIT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
