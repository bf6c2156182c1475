"""Kafka's own command line, from its own jars, against the cluster."""

from __future__ import annotations

import pytest

from tests.harness.deployments import Deployment
from tests.harness.kafka_tools import CONSUMER, GROUPS, PRODUCER, TOPICS, Tool

pytestmark = pytest.mark.kafka

LINES = [f"line {number}" for number in range(200)]


def test_the_scripts_of_kafka_create_produce_consume_and_describe(
    cluster: Deployment, tool: Tool, topic: str, group: str
) -> None:
    at = ("--bootstrap-server", cluster.bootstrap)
    settings = ("--partitions", "3", "--config", "retention.ms=86400000")
    tool(TOPICS, *at, "--create", "--topic", topic, *settings)
    assert topic in tool(TOPICS, *at, "--list").splitlines()

    tool(PRODUCER, *at, "--topic", topic, given="\n".join(LINES))
    consume = ("--topic", topic, "--group", group, "--from-beginning")
    limit = ("--max-messages", str(len(LINES)), "--timeout-ms", "120000")
    read = tool(CONSUMER, *at, *consume, *limit)
    assert sorted(read.splitlines()) == sorted(LINES)

    groups = tool(GROUPS, *at, "--list")
    assert group in groups.splitlines()
    lags = tool(GROUPS, *at, "--describe", "--group", group)
    rows = [line.split() for line in lags.splitlines() if line.startswith(group)]
    assert sum(int(row[3]) for row in rows) == len(LINES)
    assert [row[3] for row in rows] == [row[4] for row in rows]
    assert {row[5] for row in rows} == {"0"}
