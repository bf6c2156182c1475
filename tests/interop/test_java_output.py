"""Kafka's programs print the same about a cluster of ours as about Apache Kafka 3.9.

Both get the same topics, records and offsets; what differs by nature (addresses, ids, times,
bytes on disk) is taken out before the texts are compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from tests.harness.confluent_client import Confluent
from tests.harness.deployments import (
    Deployment,
    KafkaCluster,
    OwnCluster,
    create_topic,
    is_apache_kafka,
)
from tests.harness.kafka_tools import CONFIGS, GROUPS, LOG_DIRS, TOPICS, Tool
from tests.harness.records import Sent
from tests.harness.steady_settings import STEADY

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.nightly,
    pytest.mark.skipif(is_apache_kafka(), reason="both are here already"),
]

TOPIC, GROUP = "fruit", "readers"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
COMMANDS: Sequence[tuple[str, ...]] = (
    (TOPICS, "--list"),
    (TOPICS, "--list", "--exclude-internal"),
    (TOPICS, "--describe", "--topic", TOPIC),
    (TOPICS, "--describe", "--under-replicated-partitions"),
    (TOPICS, "--describe", "--unavailable-partitions"),
    (TOPICS, "--describe", "--topics-with-overrides", "--topic", TOPIC),
    (CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", TOPIC),
    (CONFIGS, "--describe", "--all", "--entity-type", "topics", "--entity-name", TOPIC),
    (OFFSETS, "--topic", TOPIC),
    (OFFSETS, "--topic", TOPIC, "--time", "earliest"),
    (OFFSETS, "--topic", TOPIC, "--time", "max-timestamp"),
    (OFFSETS, "--topic", TOPIC, "--time", "2500"),
    (GROUPS, "--list"),
    (GROUPS, "--list", "--state"),
    (GROUPS, "--list", "--type"),
    (GROUPS, "--list", "--type", "classic"),
    (GROUPS, "--describe", "--group", GROUP),
    (GROUPS, "--describe", "--group", GROUP, "--offsets"),
    (GROUPS, "--describe", "--group", GROUP, "--state"),
    (GROUPS, "--describe", "--group", GROUP, "--members", "--verbose"),
    (GROUPS, "--describe", "--all-groups"),
    (GROUPS, "--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-earliest", "--dry-run"),
    (
        GROUPS,
        "--reset-offsets",
        "--group",
        GROUP,
        "--topic",
        TOPIC,
        "--shift-by",
        "-1",
        "--dry-run",
    ),
    (GROUPS, "--delete-offsets", "--group", GROUP, "--topic", "nothing"),
    (TRANSACTIONS, "describe-producers", "--topic", TOPIC, "--partition", "0"),
    (LOG_DIRS, "--describe", "--topic-list", TOPIC),
)
BY_NATURE: Sequence[tuple[str, str]] = (
    (r"TopicId: \S+", "TopicId: ID"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r'"logDir":"[^"]*"', '"logDir":"DIR"'),
    (r'"size":\d+', '"size":N'),
    (r" sensitive=false synonyms=.*", ""),  # which defaults have one differs here and there
    (r"\s+", " "),
)


@pytest.fixture(scope="module")
def both() -> Iterator[dict[str, Deployment]]:
    """One node of ours and one of Kafka's, with the same things in them."""
    settings = {**STEADY, "offsets.topic.num.partitions": "3"}
    started: dict[str, Deployment] = {}
    try:
        for name, kind in (("kafka", KafkaCluster), ("ours", OwnCluster)):
            started[name] = kind(1, settings)
            fill(started[name])
        yield started
    finally:
        for running in started.values():
            running.stop()


def fill(cluster: Deployment) -> None:
    library = Confluent()
    create_topic(cluster, library, TOPIC, 2)
    library.produce(
        cluster.bootstrap,
        TOPIC,
        [Sent(b"x", partition=at % 2, timestamp_ms=1_000 * at) for at in range(10)],
    )
    member = library.join(cluster.bootstrap, GROUP, TOPIC)
    read = 0
    while read < 10:
        read += len(member.poll())
    member.commit()
    member.close()


def shown(tool: Tool, cluster: Deployment, command: Sequence[str]) -> list[str]:
    """The lines that a program prints, sorted, without what differs by nature."""
    name, *arguments = command
    at = ("--bootstrap-server", cluster.bootstrap)
    lines = tool(name, *at, *arguments).splitlines()
    for pattern, instead in BY_NATURE:
        lines = [re.sub(pattern, instead, line).strip() for line in lines]
    return sorted(line for line in lines if line)


@pytest.mark.parametrize(
    "command", COMMANDS, ids=lambda command: " ".join(command).rpartition(".")[2]
)
def test_a_program_prints_the_same(
    both: dict[str, Deployment], tool: Tool, command: Sequence[str]
) -> None:
    assert shown(tool, both["ours"], command) == shown(tool, both["kafka"], command)
