"""Transactions in one cluster of Apache Kafka 3.9 and our nodes: check T10.3.

Coordinators of either kind end them in partitions that the other kind leads. At night they also
take over from each other (test_kafka_peer_transactions.py).
Source: docs/spec/transactions.md §10.3; docs/kafka-peers.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.client.admin.admin import Admin
from barnabas.client.errors import KafkaError
from barnabas.console.development.cluster import Cluster
from barnabas.coordinator.ports import TRANSACTION_TOPIC
from barnabas.protocol.hashing import group_partition
from benchmarks.server_process import ServerProcess
from tests.harness.confluent_client import Confluent
from tests.harness.kafka_peers import SHARED, Tree, kafka_peer
from tests.harness.raw_transactions import RawTransactionalProducer
from tests.harness.waiting import eventually
from tests.interop.test_kafka_peer_transactions import transact

pytestmark = pytest.mark.kafka

KAFKA = 3
"""The node of Kafka; 1 and 2 are ours."""
NODES = (1, 2, KAFKA)
SETTINGS = {
    **SHARED,
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}
LOG_REPLICAS = {0: [KAFKA, 1], 1: [1, KAFKA], 2: [2, 1]}
"""Of each partition of the transaction log; the first one coordinates."""


class MixedCluster:
    """Two of our nodes with a secret and beacons, and one of Kafka that knows the secret."""

    def __init__(self, ours: Cluster, kafka: ServerProcess) -> None:
        self.ours = ours
        self.kafka = kafka
        self.tree = Tree(ours.zookeeper)

    def bootstrap(self, node: int) -> str:
        return self.kafka.bootstrap if node == KAFKA else self.ours.node(node).address

    def join(self) -> None:
        """Start the node of Kafka; every node coordinates the ids of one partition."""
        first = RawTransactionalProducer(self.bootstrap(1), "first")
        first.start()  # makes the topic
        self.kafka.start()
        self.tree.await_registered(set(NODES))
        places = {(TRANSACTION_TOPIC, index): nodes for index, nodes in LOG_REPLICAS.items()}
        self.tree.reassign(places)
        wanted = [nodes[0] for nodes in LOG_REPLICAS.values()]

        def are_preferred() -> bool:
            """Who has fallen behind for a moment is not elected then."""
            self.tree.prefer(places)
            return self.tree.leaders(TRANSACTION_TOPIC, len(wanted)) == wanted

        eventually(are_preferred, within_s=240, what=f"coordinators are {wanted}")
        for index, nodes in LOG_REPLICAS.items():
            self.await_in_sync(TRANSACTION_TOPIC, index, nodes)

    def create(self, topic: str, replicas: list[list[int]]) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap(1)})
        wanted = NewTopic(topic, len(replicas), replica_assignment=replicas)
        admin.create_topics([wanted])[topic].result(60)
        self.await_leaders(topic, [nodes[0] for nodes in replicas])
        for node in NODES:
            eventually(lambda: self._knows(node, topic), what=f"{node} knows {topic}")  # noqa: B023

    def _knows(self, node: int, topic: str) -> bool:
        async def ask() -> bool:
            async with Admin.of(self.bootstrap(node)) as admin:
                (found,) = await admin.describe_topics([topic])
            return all(partition.leader is not None for partition in found.partitions)

        try:
            return asyncio.run(ask())
        except KafkaError:
            return False

    def await_leaders(self, topic: str, leaders: list[int]) -> None:
        eventually(
            lambda: self.tree.leaders(topic, len(leaders)) == leaders,
            within_s=240,
            what=f"{topic} is led by {leaders}",
        )

    def await_in_sync(self, topic: str, index: int, nodes: list[int]) -> None:
        eventually(
            lambda: set(self.tree.state(topic, index).isr) == set(nodes),
            within_s=240,
            what=f"{topic}-{index} is in sync on {nodes}",
        )

    def state(self, asked: int, transactional_id: str) -> str | None:
        """The state of a transaction, as whoever coordinates it tells; None while nobody does."""

        async def ask() -> str:
            async with Admin.of(self.bootstrap(asked)) as admin:
                return (await admin.describe_transaction(transactional_id)).state

        try:
            return asyncio.run(ask())
        except KafkaError as error:
            if not error.retriable:
                raise
            return None

    def await_state(self, asked: int, transactional_id: str, state: str) -> None:
        eventually(
            lambda: self.state(asked, transactional_id) == state,
            within_s=240,
            what=f"{transactional_id} is {state}",
        )


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    with Cluster(2, tmp_path / "ours", settings=SETTINGS) as ours:
        kafka = kafka_peer(
            KAFKA, tmp_path / "kafka", ours.zookeeper, secret=ours.secret, settings=SETTINGS
        )
        try:
            mixed = MixedCluster(ours, kafka)
            mixed.join()
            yield mixed
        finally:
            kafka.kill()


def id_of(coordinator: int, topic: str) -> str:
    """A transactional id that the node coordinates."""
    partition = next(index for index, nodes in LOG_REPLICAS.items() if nodes[0] == coordinator)
    names = (f"{topic}-{number}" for number in range(1000))
    return next(name for name in names if group_partition(name, len(LOG_REPLICAS)) == partition)


def read(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """The committed records up to where no transaction is open; librdkafka's default."""
    found = Confluent().read(bootstrap, topic, {partition: "beginning"})
    return [one.value for one in found if one.value is not None]


def test_coordinators_of_both_kinds_end_transactions_in_partitions_of_both(
    cluster: MixedCluster, topic: str
) -> None:
    """Kafka proves itself by the nodes' listener and the secret: its markers are believed."""
    cluster.create(topic, [[KAFKA, 1], [1, KAFKA], [2, 1]])
    for coordinator in NODES:
        producer = RawTransactionalProducer(cluster.bootstrap(1), id_of(coordinator, topic))
        producer.start()
        for word, is_commit in ((b"kept", True), (b"dropped", False), (b"kept too", True)):
            producer.add(topic, 0, 1, 2)
            for partition in range(3):
                value = b"%s by %d" % (word, coordinator)
                transact(producer, topic, partition, value)
            producer.end(is_commit=is_commit)
            state = "CompleteCommit" if is_commit else "CompleteAbort"
            cluster.await_state(1, producer.transactional_id, state)
    expected = [
        b"%s by %d" % (word, coordinator)
        for coordinator in NODES
        for word in (b"kept", b"kept too")
    ]
    for partition in range(3):
        assert read(cluster.bootstrap(1), topic, partition) == expected
