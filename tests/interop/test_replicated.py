"""Three real nodes, three replicas, kill -9 of whoever leads: what was acknowledged is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.node import NodeProcess
from barnabas.protocol.zookeeper.znodes import PartitionState, partition_state_path
from tests.harness import znodes
from tests.harness.confluent_client import Confluent
from tests.harness.records import assert_as_acknowledged
from tests.harness.traffic import IdempotentProducer, PatientCommitter
from tests.harness.waiting import eventually

NODES = 3
PARTITIONS = 4
ROUNDS = 3
OFFSETS = "__consumer_offsets"


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    with Cluster(NODES, settings={"offsets.topic.num.partitions": "5"}) as cluster:
        yield cluster


def state(cluster: Cluster, topic: str, partition: int) -> PartitionState | None:
    data = znodes.data(cluster.zookeeper, partition_state_path(topic, partition))
    return None if data is None else PartitionState.from_json(data)


def is_in_sync(cluster: Cluster, topic: str, partitions: int) -> bool:
    found = [state(cluster, topic, partition) for partition in range(partitions)]
    return all(one is not None and len(one.isr) == NODES for one in found)


def leader(cluster: Cluster, topic: str, partition: int) -> NodeProcess:
    def ask() -> int:
        found = state(cluster, topic, partition)
        return 0 if found is None else max(0, found.leader)

    return cluster.node(eventually(ask, what="a leader"))


def restart(node: NodeProcess) -> None:
    node.spawn()
    node.let_serve()
    node.wait_ready()


def create(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic(topic, PARTITIONS, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(120)
    eventually(lambda: is_in_sync(cluster, topic, PARTITIONS), what="all in sync")


def test_nothing_acknowledged_is_lost_when_leaders_are_killed_one_after_the_other(
    nodes: Cluster, topic: str, group: str
) -> None:
    create(nodes, topic)
    with (
        IdempotentProducer(nodes.bootstrap, topic, PARTITIONS) as producer,
        PatientCommitter(nodes.bootstrap, topic, group) as committer,
    ):
        eventually(lambda: committer.acknowledged > 20, within_s=240)
        eventually(lambda: is_in_sync(nodes, OFFSETS, 5), within_s=240)
        for number in range(ROUNDS):
            written, committed = len(producer.acknowledged), committer.acknowledged
            victim = leader(nodes, topic, number % PARTITIONS)
            victim.kill()
            eventually(lambda: len(producer.acknowledged) > written + 500, within_s=240)  # noqa: B023
            eventually(lambda: committer.acknowledged > committed + 20, within_s=240)  # noqa: B023
            restart(victim)
            eventually(lambda: is_in_sync(nodes, topic, PARTITIONS), within_s=240)
            eventually(lambda: is_in_sync(nodes, OFFSETS, 5), within_s=240)
    assert producer.refused == []
    library = Confluent()
    found = library.read(nodes.bootstrap, topic, dict.fromkeys(range(PARTITIONS), "beginning"))
    assert_as_acknowledged(found, producer.acknowledged)
    offset = library.committed(nodes.bootstrap, group)[0]
    assert committer.acknowledged <= offset <= committer.sent
