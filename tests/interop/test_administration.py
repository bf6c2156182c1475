"""Administrators that others wrote: partitions, settings, elections, moves, log directories."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as Place
from kafka.admin import ConfigResource as Resource

from tests.harness.deployments import Deployment, await_leaders
from tests.harness.waiting import eventually

WAIT_S = 120.0


@pytest.fixture
def confluent(cluster: Deployment) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


@pytest.fixture
def kafka_python(cluster: Deployment) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield admin
    admin.close()


@pytest.fixture
def replicated(cluster: Deployment, confluent: AdminClient, topic: str) -> str:
    """A topic with one partition on three nodes."""
    confluent.create_topics([NewTopic(topic, 1, replication_factor=3)])[topic].result(WAIT_S)
    await_leaders(cluster, topic, 1)
    return topic


def in_sync(admin: AdminClient, topic: str) -> dict[int, tuple[list[int], set[int]]]:
    """Replicas and in-sync set of each partition."""
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(WAIT_S)
    return {
        partition.id: (
            [node.id for node in partition.replicas],
            {node.id for node in partition.isr},
        )
        for partition in described.partitions
    }


def await_whole(admin: AdminClient, topic: str, partitions: int) -> None:
    """Return when whoever is asked knows so many partitions, all in sync on three nodes."""

    def is_whole() -> bool:
        found = in_sync(admin, topic)
        return sorted(found) == list(range(partitions)) and all(
            len(isr) == 3 for _, isr in found.values()
        )

    eventually(is_whole, what=f"{partitions} partitions of {topic} in sync")


def test_confluent_adds_partitions(confluent: AdminClient, replicated: str) -> None:
    confluent.create_partitions([NewPartitions(replicated, 3)])[replicated].result(WAIT_S)
    await_whole(confluent, replicated, 3)
    with pytest.raises(KafkaException, match="INVALID_PARTITIONS"):
        confluent.create_partitions([NewPartitions(replicated, 2)])[replicated].result(WAIT_S)


def test_confluent_changes_single_settings(confluent: AdminClient, replicated: str) -> None:
    def alter(operation: AlterConfigOpType, name: str, value: str | None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, replicated, incremental_configs=[entry]
        )
        for done in confluent.incremental_alter_configs([resource]).values():
            done.result(WAIT_S)

    def shown(name: str) -> tuple[str, bool]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, replicated)
        (done,) = confluent.describe_configs([resource]).values()
        entry = done.result(WAIT_S)[name]
        return entry.value, entry.is_default

    alter(AlterConfigOpType.SET, "retention.ms", "4321")
    alter(AlterConfigOpType.APPEND, "cleanup.policy", "compact")
    assert shown("retention.ms") == ("4321", False)
    assert shown("cleanup.policy") == ("delete,compact", False)
    alter(AlterConfigOpType.DELETE, "retention.ms", None)
    assert shown("retention.ms") == ("604800000", True)
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        alter(AlterConfigOpType.SET, "retention.ms", "soon")


def test_confluent_has_leaders_elected(
    confluent: AdminClient, kafka_python: KafkaAdminClient, replicated: str
) -> None:
    place = TopicPartition(replicated, 0)
    (before, _) = in_sync(confluent, replicated)[0]
    kafka_python.alter_partition_reassignments({Place(replicated, 0): before[1:] + before[:1]})
    eventually(
        lambda: in_sync(confluent, replicated)[0][0][0] == before[1], what="another is preferred"
    )
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [place]).result(WAIT_S)
    assert elected[place] is None
    again = confluent.elect_leaders(ElectionType.PREFERRED, [place]).result(WAIT_S)
    assert again[place].name() == "ELECTION_NOT_NEEDED"


def test_kafka_python_adds_partitions_and_changes_settings(
    kafka_python: KafkaAdminClient, confluent: AdminClient, replicated: str
) -> None:
    kafka_python.create_partitions({replicated: 2})
    await_whole(confluent, replicated, 2)
    for incremental in (True, False):
        value = "5555" if incremental else "6666"
        resource = Resource("TOPIC", replicated, configs={"retention.ms": value})
        kafka_python.alter_configs([resource], incremental=incremental)
        told = kafka_python.describe_configs([Resource("TOPIC", replicated)])
        assert value in str(told)


def test_kafka_python_moves_a_partition_and_watches_it(
    kafka_python: KafkaAdminClient, confluent: AdminClient, replicated: str
) -> None:
    place = Place(replicated, 0)
    (before, _) = in_sync(confluent, replicated)[0]
    target = before[2:]
    assert kafka_python.alter_partition_reassignments({place: target}) == {place: None}
    eventually(
        lambda: place not in kafka_python.list_partition_reassignments(), what="the move ends"
    )
    eventually(
        lambda: in_sync(confluent, replicated)[0] == (target, set(target)), what="all know it"
    )
    (refusal,) = kafka_python.alter_partition_reassignments({place: [77]}).values()
    assert refusal.errno == 39
    (missing,) = kafka_python.alter_partition_reassignments({place: None}).values()
    assert missing.errno == 85


def test_kafka_python_describes_log_directories(
    kafka_python: KafkaAdminClient, replicated: str
) -> None:
    def are_told() -> bool:
        """Nodes are told to replicate by another request than the one that makes a topic known."""
        told = kafka_python.describe_log_dirs({replicated: [0]})
        assert len(told) == 3
        return str(told).count(replicated) == 3

    eventually(are_told, what="each node has its log")
