"""Kafka's own command line, from its own jars, against the cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.console.java import find_java
from benchmarks.apache_kafka import CACHE, class_path
from tests.harness.deployments import Deployment, kafka_libs

pytestmark = pytest.mark.kafka

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
FLAGS = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LINES = [f"line {number}" for number in range(200)]

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Tool:
    jars = kafka_libs() or CACHE / "libs"
    if not list(Path(jars).glob("kafka-tools-*.jar")):
        pytest.skip("no jars of Apache Kafka: benchmarks/commit.py --against kafka fetches them")
    logging = tmp_path_factory.mktemp("tools") / "log4j.properties"
    logging.write_text("log4j.rootLogger=OFF\n")

    def run(name: str, *arguments: str, given: str = "") -> str:
        command = [str(find_java()), *FLAGS, f"-Dlog4j.configuration=file:{logging}"]
        command += ["-cp", class_path(jars), name, *arguments]
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_scripts_of_kafka_create_produce_consume_and_describe(
    cluster: Deployment, tool: Tool, topic: str, group: str
) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    settings = ("--partitions", "3", "--config", "retention.ms=86400000")
    tool(TOPICS, *at, "--create", "--topic", topic, *settings)
    assert topic in tool(TOPICS, *at, "--list").splitlines()

    tool(PRODUCER, *at, "--topic", topic, given="\n".join(LINES))
    consume = ("--topic", topic, "--group", group, "--from-beginning")
    limit = ("--max-messages", str(len(LINES)), "--timeout-ms", "60000")
    read = tool(CONSUMER, *at, *consume, *limit)
    assert sorted(read.splitlines()) == sorted(LINES)

    groups = tool(GROUPS, *at, "--list")
    assert group in groups.splitlines()
    lags = tool(GROUPS, *at, "--describe", "--group", group)
    rows = [line.split() for line in lags.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == len(LINES)
    assert [row[3] for row in rows] == [row[4] for row in rows]
    assert {row[5] for row in rows} == {"0"}
