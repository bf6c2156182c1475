"""kill -9 of the coordinator of a group, which leads partitions too, under Go and Java clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.node import NodeProcess
from tests.harness.confluent_client import Confluent
from tests.harness.go_clients import FRANZ, SARAMA, GoClient
from tests.harness.java_tools import (
    TOPICS,
    VERIFIABLE_CONSUMER,
    VERIFIABLE_PRODUCER,
    JavaTools,
)
from tests.harness.raw_calls import NO_ERROR, find_coordinator
from tests.harness.raw_connection import RawConnection
from tests.harness.records import assert_as_acknowledged
from tests.harness.reporting_programs import (
    GoCommitter,
    GoProducer,
    VerifiableConsumer,
    VerifiableProducer,
)
from tests.harness.waiting import eventually

NODES = 3
PARTITIONS = 3
WAIT_S = 120.0
SETTINGS = {"offsets.topic.num.partitions": "3", "min.insync.replicas": "2"}


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with Cluster(NODES, settings=SETTINGS) as cluster:
        yield cluster


def is_in_sync(cluster: Cluster, topic: str) -> bool:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    shown = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions.values()
    return len(shown) > 0 and all(len(partition.isrs) == NODES for partition in shown)


def coordinator_of(cluster: Cluster, group: str) -> NodeProcess:
    def ask() -> int:
        with RawConnection(("127.0.0.1", cluster.nodes[0].port)) as link:
            found = find_coordinator(link, group)
        return found.port if found.error == NO_ERROR else 0

    port = eventually(ask, what="a coordinator")
    return next(node for node in cluster.nodes if node.port == port)


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(FRANZ, id="franz-go"),
        pytest.param(SARAMA, id="sarama", marks=pytest.mark.nightly),
    ],
)
def test_what_was_acknowledged_survives_the_coordinator(
    nodes: Cluster, client: GoClient, topic: str, group: str
) -> None:
    bootstrap = nodes.bootstrap
    client.create_topic(bootstrap, topic, PARTITIONS, NODES)
    producing = client.start("produce-on", bootstrap, Topic=topic, Partitions=PARTITIONS)
    committing = client.start("commit-on", bootstrap, Topic=topic, Group=group)
    with GoProducer(producing) as producer, GoCommitter(committing) as committer:
        eventually(lambda: committer.acknowledged > 20, within_s=WAIT_S)
        eventually(lambda: len(producer.acknowledged) > 500, within_s=WAIT_S)
        for checked in (topic, "__consumer_offsets"):
            eventually(lambda name=checked: is_in_sync(nodes, name), within_s=WAIT_S)  # type: ignore[misc]
        victim = coordinator_of(nodes, group)
        written, committed = len(producer.acknowledged), committer.acknowledged
        nodes.kill(victim.id)
        eventually(lambda: len(producer.acknowledged) > written + 500, within_s=WAIT_S)
        eventually(lambda: committer.acknowledged > committed + 20, within_s=WAIT_S)
        nodes.restart(victim.id)
    assert producer.refused == []
    eventually(lambda: is_in_sync(nodes, topic), within_s=WAIT_S)
    everything = dict.fromkeys(range(PARTITIONS), "beginning")
    for reader in (client, Confluent()):
        found = reader.read(bootstrap, topic, everything)
        assert_as_acknowledged(found, producer.acknowledged)
        kept = reader.committed(bootstrap, group)[0]
        assert committer.acknowledged <= kept <= committer.sent


PATIENT = "retries=2147483647\nenable.idempotence=true\nlinger.ms=2\n"
"""The program alone would not send a record twice."""


@pytest.mark.kafka
@pytest.mark.nightly
def test_the_java_client_loses_neither_records_nor_commits(
    nodes: Cluster, java: JavaTools, topic: str, group: str, tmp_path: Path
) -> None:
    at = ("--bootstrap-server", nodes.bootstrap)
    counts = ("--partitions", str(PARTITIONS), "--replication-factor", str(NODES))
    java.run(TOPICS, *at, "--create", "--topic", topic, *counts)
    settings = tmp_path / "patient.properties"
    settings.write_text(PATIENT)
    given = ("--throughput", "1000", "--acks", "-1", "--producer.config", str(settings))
    producing = java.start(VERIFIABLE_PRODUCER, *at, "--topic", topic, *given)
    of = ("--topic", topic, "--group-id", group, "--verbose")
    consuming = java.start(VERIFIABLE_CONSUMER, *at, *of)
    with VerifiableConsumer(consuming) as consumer:
        with VerifiableProducer(producing) as producer:
            eventually(lambda: len(consumer.committed) == PARTITIONS, within_s=WAIT_S)
            for checked in (topic, "__consumer_offsets"):
                eventually(lambda name=checked: is_in_sync(nodes, name), within_s=WAIT_S)  # type: ignore[misc]
            victim = coordinator_of(nodes, group)
            written, committed = len(producer.acknowledged), sum(consumer.committed.values())
            nodes.kill(victim.id)
            eventually(lambda: len(producer.acknowledged) > written + 500, within_s=WAIT_S)
            eventually(lambda: sum(consumer.committed.values()) > committed + 500, within_s=WAIT_S)
            nodes.restart(victim.id)
        assert producer.refused == []
        places = set(producer.acknowledged.values())
        eventually(lambda: consumer.read >= places, within_s=WAIT_S, what="all is read")
        total = len(places)
        eventually(lambda: sum(consumer.committed.values()) == total, within_s=WAIT_S)
    assert consumer.went_back == []
    library = Confluent()
    found = library.read(nodes.bootstrap, topic, dict.fromkeys(range(PARTITIONS), "beginning"))
    assert_as_acknowledged(found, producer.acknowledged)
    assert library.committed(nodes.bootstrap, group) == consumer.committed
