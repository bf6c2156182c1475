"""What tests ask of a cluster, whoever started it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed
from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.console.development.existing_cluster import ExistingCluster
from barnabas.testing import Cluster
from tests.harness.steady_settings import STEADY


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(2, settings=STEADY) as running:
        yield running


async def test_a_topic_is_led_and_copied_when_the_calls_return(cluster: Cluster) -> None:
    topic = cluster.create_topic(
        "copied", 3, replication_factor=2, settings={"cleanup.policy": "compact"}
    )
    cluster.wait_in_sync(topic, 2)
    async with Admin.of(cluster.bootstrap) as admin:
        (described,) = await admin.describe_topics([topic])
    assert [sorted(partition.in_sync) for partition in described.partitions] == [[1, 2]] * 3


async def test_committed_offsets_are_shown_by_partition(cluster: Cluster) -> None:
    topic_partition = TopicPartition(cluster.create_topic("counted"), 0)
    assert cluster.committed("counters") == {}
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.alter_offsets("counters", {topic_partition: Committed(offset=7)})
    assert cluster.committed("counters") == {topic_partition: 7}


def test_what_the_cluster_refuses_is_raised(cluster: Cluster) -> None:
    cluster.create_topic("only-once")
    with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topic("only-once")
    cluster.delete_topic("only-once")
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        cluster.delete_topic("only-once")


def test_repair_brings_back_what_was_killed_and_what_was_paused(cluster: Cluster) -> None:
    cluster.pause(1)
    cluster.kill(2)
    cluster.repair()
    assert all(node.is_running for node in cluster.nodes)
    topic = cluster.create_topic("afterwards", 2, replication_factor=2)
    cluster.wait_in_sync(topic, 2)


def test_a_cluster_that_was_given_is_used_but_not_harmed(cluster: Cluster) -> None:
    class Harm(Exception):  # noqa: N818
        pass

    def refuse(reason: str) -> NoReturn:
        raise Harm(reason)

    given = ExistingCluster(cluster.bootstrap, cluster.zookeeper, refuse)
    given.delete_topic(given.create_topic("borrowed"))
    given.repair()
    for harm in (given.kill, given.restart, given.pause, given.resume):
        with pytest.raises(Harm, match="was started elsewhere"):
            harm(1)


async def test_a_cluster_can_be_had_with_async_with() -> None:
    async with Cluster(1) as cluster:
        assert cluster.create_topic("here") == "here"
    assert not cluster.nodes
