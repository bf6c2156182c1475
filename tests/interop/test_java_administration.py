"""Kafka's own tools for administrators: the same commands do the same here as against Kafka 3.9.

BARNABAS_INTEROP_SERVER=kafka runs them against Apache Kafka, which must pass them as well.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.deployments import Deployment, await_leaders
from tests.harness.kafka_tools import (
    CONFIGS,
    ELECTIONS,
    LOG_DIRS,
    PRODUCER,
    REASSIGNMENTS,
    TOPICS,
    Tool,
)
from tests.harness.waiting import eventually

pytestmark = pytest.mark.kafka

LINES = [f"line {number}" for number in range(100)]


class Shell:
    """The tools, with the cluster that they are to work on."""

    def __init__(self, tool: Tool, cluster: Deployment) -> None:
        self._tool = tool
        self._at = ("--bootstrap-server", cluster.bootstrap)
        self._cluster = cluster

    def __call__(self, name: str, *arguments: str, given: str = "") -> str:
        return self._tool(name, *self._at, *arguments, given=given)

    def refused(self, name: str, *arguments: str) -> str:
        """What the tool says when it fails, as it must."""
        with pytest.raises(AssertionError) as failure:
            self(name, *arguments)
        return str(failure.value)

    def create(self, topic: str, partitions: int, factor: int, *more: str) -> None:
        counts = ("--partitions", str(partitions), "--replication-factor", str(factor))
        self(TOPICS, "--create", "--topic", topic, *counts, *more)
        await_leaders(self._cluster, topic, partitions)

    def replicas(self, topic: str) -> dict[int, tuple[str, list[int], set[int]]]:
        """Leader, replicas and in-sync set of each partition, as kafka-topics shows them."""
        shown = self(TOPICS, "--describe", "--topic", topic)
        rows = [line.split("\t") for line in shown.splitlines() if "\tPartition: " in line]
        fields = [dict(cell.split(": ", 1) for cell in row if ": " in cell) for row in rows]
        return {
            int(field["Partition"]): (
                field["Leader"],
                [int(node) for node in field["Replicas"].split(",")],
                {int(node) for node in field["Isr"].split(",")},
            )
            for field in fields
        }


@pytest.fixture
def shell(tool: Tool, cluster: Deployment) -> Shell:
    return Shell(tool, cluster)


def test_a_topic_is_described_by_its_id(shell: Shell, topic: str) -> None:
    shell.create(topic, 2, 3)
    shown = shell(TOPICS, "--describe", "--topic", topic)
    (topic_id,) = {
        word
        for line in shown.splitlines()
        if "TopicId: " in line
        for word in [line.split("TopicId: ")[1].split()[0]]
    }
    assert shell(TOPICS, "--describe", "--topic-id", topic_id) == shown


def test_topics_are_created_with_replicas_and_grow(
    shell: Shell, cluster: Deployment, topic: str
) -> None:
    shell.create(topic, 2, 3, "--config", "min.insync.replicas=2")
    shell(TOPICS, "--alter", "--topic", topic, "--partitions", "4")
    await_leaders(cluster, topic, 4)
    found = shell.replicas(topic)
    assert sorted(found) == [0, 1, 2, 3]
    assert all(sorted(replicas) == [1, 2, 3] for _, replicas, _ in found.values())
    assert all(in_sync == {1, 2, 3} for _, _, in_sync in found.values())
    assert all(leader == str(replicas[0]) for leader, replicas, _ in found.values())
    fewer = shell.refused(TOPICS, "--alter", "--topic", topic, "--partitions", "2")
    assert "has 4 partitions" in fewer
    too_many = ("--partitions", "1", "--replication-factor", "5")
    assert "5" in shell.refused(TOPICS, "--create", "--topic", "x", *too_many)
    assert "x" not in shell(TOPICS, "--list").splitlines()


def test_settings_of_a_topic_are_set_shown_and_taken_back(shell: Shell, topic: str) -> None:
    shell.create(topic, 1, 1)
    of = ("--entity-type", "topics", "--entity-name", topic)
    shell(
        CONFIGS, "--alter", *of, "--add-config", "retention.ms=1234,cleanup.policy=[compact,delete]"
    )
    shown = shell(CONFIGS, "--describe", *of)
    assert f"Dynamic configs for topic {topic} are:" in shown
    assert (
        "  retention.ms=1234 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=1234"
        in shown
    )
    assert "cleanup.policy=compact,delete" in shown
    assert "DEFAULT_CONFIG:log.cleanup.policy=delete}" in shown
    shell(CONFIGS, "--alter", *of, "--delete-config", "retention.ms")
    assert "retention.ms" not in shell(CONFIGS, "--describe", *of)
    for wrong in ("retention.ms=soon", "retention.mss=1"):
        refused = shell.refused(CONFIGS, "--alter", *of, "--add-config", wrong)
        assert "InvalidConfigurationException" in refused


def test_settings_of_nodes_are_set_shown_and_taken_back(shell: Shell, topic: str) -> None:
    one, every = ("--entity-name", "1"), ("--entity-default",)
    nodes = ("--entity-type", "brokers")
    shell(CONFIGS, "--alter", *nodes, *one, "--add-config", "log.retention.ms=7777")
    shell(CONFIGS, "--alter", *nodes, *every, "--add-config", "log.retention.ms=8888")
    try:
        own = shell(CONFIGS, "--describe", *nodes, *one)
        assert "Dynamic configs for broker 1 are:" in own
        assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=7777, DYNAMIC_DEFAULT_BROKER_CONFIG:" in own
        default = shell(CONFIGS, "--describe", *nodes, *every)
        assert "Default configs for brokers in the cluster are:" in default
        assert "log.retention.ms=8888" in default
        refused = shell.refused(CONFIGS, "--alter", *nodes, *one, "--add-config", "broker.id=9")
        assert "InvalidRequestException" in refused
    finally:
        shell(CONFIGS, "--alter", *nodes, *one, "--delete-config", "log.retention.ms")
        shell(CONFIGS, "--alter", *nodes, *every, "--delete-config", "log.retention.ms")


def move(shell: Shell, topic: str, targets: Sequence[Sequence[int]], where: Path) -> str:
    """Give partitions 0, 1, ... other replicas and wait for the end of it."""
    wishes = [
        {"topic": topic, "partition": index, "replicas": list(replicas)}
        for index, replicas in enumerate(targets)
    ]
    plan = where / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": wishes}))
    file = ("--reassignment-json-file", str(plan))
    begun = shell(REASSIGNMENTS, *file, "--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignment" in begun

    def is_over() -> str:
        shown = shell(REASSIGNMENTS, *file, "--verify")
        # Who moves them says that it is done before the node that is asked for them has heard it.
        is_done = shown.count("is completed.") == len(wishes)
        return shown if is_done and "still in progress" not in shown else ""

    return eventually(is_over, what="the partitions are moved", within_s=300)


def test_replicas_move_with_their_records_and_leadership_follows(
    shell: Shell, topic: str, tmp_path: Path
) -> None:
    shell.create(topic, 2, 1)
    shell(PRODUCER, "--topic", topic, given="\n".join(LINES))
    verified = move(shell, topic, [(1, 2, 3), (3, 1)], tmp_path)
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    moved = [([1, 2, 3], {1, 2, 3}), ([3, 1], {1, 3})]
    eventually(
        lambda: [shell.replicas(topic)[index][1:] for index in (0, 1)] == moved,
        what="whoever is asked knows the new replicas",
    )
    assert "No partition reassignments found." in shell(REASSIGNMENTS, "--list")

    move(shell, topic, [(2, 3, 1), (1, 3)], tmp_path)
    elected = shell(ELECTIONS, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"{topic}-0" in elected
    again = shell(ELECTIONS, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in again
    eventually(lambda: shell.replicas(topic)[0][0] == "2", what="whoever is asked knows the leader")


def test_log_directories_tell_the_size_of_each_replica(shell: Shell, topic: str) -> None:
    shell.create(topic, 1, 2)
    shell(PRODUCER, "--topic", topic, "--request-required-acks", "all", given="\n".join(LINES))
    shown = shell(LOG_DIRS, "--describe", "--topic-list", topic)
    nodes = json.loads(shown.splitlines()[-1])["brokers"]
    sizes = [
        partition["size"]
        for node in nodes
        for directory in node["logDirs"]
        for partition in directory["partitions"]
    ]
    assert len(nodes) == 3
    assert len(sizes) == 2
    assert sizes[0] == sizes[1] > sum(map(len, LINES))
    assert all(directory["error"] is None for node in nodes for directory in node["logDirs"])
