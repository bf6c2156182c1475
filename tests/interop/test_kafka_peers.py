"""One cluster of Apache Kafka 3.9 and of our nodes: both join, follow, lead and leave.

While it happens librdkafka produces with acks=all and commits; what was acknowledged is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.node import NodeProcess
from barnabas.console.development.ports import LOOPBACK
from benchmarks.server_process import ServerProcess
from tests.harness.confluent_client import Confluent
from tests.harness.group_reader import GroupReader
from tests.harness.kafka_peers import (
    OFFSETS,
    OFFSETS_PARTITIONS,
    SHARED,
    Tree,
    kafka_peer,
    own_peer,
    restart,
)
from tests.harness.raw_calls import leaders, live_brokers
from tests.harness.raw_connection import Address, RawConnection, addresses_of
from tests.harness.records import Sent, assert_as_acknowledged
from tests.harness.traffic import IdempotentProducer, PatientCommitter
from tests.harness.waiting import eventually

pytestmark = pytest.mark.kafka

PARTITIONS = 3
OFFSETS_SHARES = [(OFFSETS, index) for index in range(OFFSETS_PARTITIONS)]


def shares(topic: str) -> list[tuple[str, int]]:
    """Every partition of the topic and of the offsets."""
    return [*((topic, index) for index in range(PARTITIONS)), *OFFSETS_SHARES]


def rotated(topic: str, nodes: list[int]) -> dict[tuple[str, int], list[int]]:
    """Every node is first for some partitions."""
    count = len(nodes)
    return {
        (name, index): [nodes[(index + place) % count] for place in range(count)]
        for name, index in shares(topic)
    }


class Load:
    """A producer with acks=all, a committer and a group member, and what came of them."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.producer = IdempotentProducer(bootstrap, topic, PARTITIONS)
        self.committer = PatientCommitter(bootstrap, topic, group)
        self.reader = GroupReader(bootstrap, topic, f"{group}-readers")

    def await_progress(self) -> None:
        """Return when each of them was served again since now, the reader by every leader."""
        written, commits = len(self.producer.acknowledged), self.reader.commits
        before = self.reader.partitions.copy()
        committed = self.committer.acknowledged

        def has_progress() -> bool:
            return (
                len(self.producer.acknowledged) > written + 500
                and self.committer.acknowledged > committed + 20
                and self.reader.commits > commits + 2
                and len(self.reader.partitions - before) == PARTITIONS
            )

        eventually(has_progress, within_s=240, what="records and commits are served everywhere")


@contextmanager
def load(bootstrap: str, topic: str, group: str) -> Iterator[Load]:
    """Traffic until the end of the block; then everything acknowledged is looked for."""
    traffic = Load(bootstrap, topic, group)
    with traffic.producer, traffic.committer, traffic.reader:
        traffic.await_progress()
        yield traffic
    producer, committer, library = traffic.producer, traffic.committer, Confluent()
    assert producer.refused == []
    found = library.read(bootstrap, topic, dict.fromkeys(range(PARTITIONS), "beginning"))
    assert_as_acknowledged(found, producer.acknowledged)
    offset = library.committed(bootstrap, group)[0]
    assert committer.acknowledged <= offset <= committer.sent
    assert traffic.reader.values <= producer.acknowledged.keys()


def create(bootstrap: str, topic: str, factor: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, PARTITIONS, factor, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(120)


def await_in_sync(tree: Tree, topic: str, nodes: set[int]) -> None:
    for name, count in ((topic, PARTITIONS), (OFFSETS, OFFSETS_PARTITIONS)):
        tree.await_in_sync(name, count, nodes)


def have_lead(tree: Tree, topic: str, node: int) -> None:
    """Elect the preferred leaders; return when the node leads records and commits.

    Asked for again: who has fallen behind for a moment, on a busy machine, is not elected then.
    """

    def leads() -> bool:
        tree.prefer(shares(topic))
        counts = ((topic, PARTITIONS), (OFFSETS, OFFSETS_PARTITIONS))
        return all(node in tree.leaders(name, count) for name, count in counts)

    eventually(leads, within_s=240, what=f"{node} leads its share of {topic} and of offsets")


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Cluster]:
    """Two of our nodes, with a secret and beacons."""
    settings = {**SHARED, "offsets.topic.replication.factor": "2"}
    with Cluster(2, tmp_path / "ours", settings=settings) as cluster:
        yield cluster


@pytest.fixture
def kafka(ours: Cluster, tmp_path: Path) -> Iterator[ServerProcess]:
    """A node of Kafka that knows their secret; not started."""
    peer = kafka_peer(3, tmp_path / "kafka", ours.zookeeper, secret=ours.secret)
    yield peer
    peer.stop()


def give_a_share(tree: Tree, topic: str) -> None:
    """Let node 3 have a replica of everything, and lead its share of it."""
    tree.await_registered({1, 2, 3})
    tree.reassign(rotated(topic, [3, 1, 2]))
    await_in_sync(tree, topic, {1, 2, 3})
    have_lead(tree, topic, 3)


def join(tree: Tree, topic: str, peer: ServerProcess) -> None:
    """Start the node of Kafka and give it its share."""
    peer.start()
    give_a_share(tree, topic)


def lose_one_and_let_3_leave(
    tree: Tree, topic: str, traffic: Load, victim: NodeProcess, stop_3: Callable[[], object]
) -> None:
    """Kill a node and have it back, then take everything from node 3 and stop it."""
    traffic.await_progress()
    victim.kill()
    traffic.await_progress()
    restart(victim)
    await_in_sync(tree, topic, {1, 2, 3})
    have_lead(tree, topic, 3)
    traffic.await_progress()
    tree.reassign(rotated(topic, [2, 1]))
    stop_3()
    tree.await_registered({1, 2})
    traffic.await_progress()
    await_in_sync(tree, topic, {1, 2})


def test_a_node_of_kafka_joins_two_of_ours_follows_leads_and_leaves(
    ours: Cluster, kafka: ServerProcess, topic: str, group: str
) -> None:
    tree, bootstrap = Tree(ours.zookeeper), f"{ours.bootstrap},{kafka.bootstrap}"
    create(ours.bootstrap, topic, 2)
    with load(bootstrap, topic, group) as traffic:
        join(tree, topic, kafka)
        victim = ours.node(tree.await_controller({1, 2}))
        lose_one_and_let_3_leave(tree, topic, traffic, victim, kafka.stop)


@pytest.mark.nightly
def test_a_node_of_kafka_is_killed_stopped_and_controller_among_ours_and_nothing_is_lost(
    ours: Cluster, kafka: ServerProcess, topic: str, group: str
) -> None:
    tree, bootstrap = Tree(ours.zookeeper), f"{ours.bootstrap},{kafka.bootstrap}"
    create(ours.bootstrap, topic, 2)
    with load(bootstrap, topic, group) as traffic:
        join(tree, topic, kafka)
        kafka.kill()
        traffic.await_progress()
        tree.await_registered({1, 2})
        kafka.start()
        await_in_sync(tree, topic, {1, 2, 3})
        have_lead(tree, topic, 3)
        kafka.stop()
        traffic.await_progress()
        kafka.start()
        await_in_sync(tree, topic, {1, 2, 3})
        for node in (1, 2):  # both pause, so that Kafka's is the only candidate
            ours.pause(node)
        tree.await_controller({3})
        for node in (1, 2):
            ours.resume(node)
        await_in_sync(tree, topic, {1, 2, 3})
        traffic.await_progress()
        tree.reassign(rotated(topic, [2, 1]))
        kafka.stop()
        tree.await_controller({1, 2})
        traffic.await_progress()
        await_in_sync(tree, topic, {1, 2})
        ours.restart(1)
        await_in_sync(tree, topic, {1, 2})
        traffic.await_progress()


@pytest.fixture
def two_of_kafka(tmp_path: Path) -> Iterator[tuple[str, list[ServerProcess]]]:
    """ZooKeeper's address and two running nodes of Kafka, 1 and 2."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as zookeeper:
        settings = {"offsets.topic.replication.factor": "2"}
        peers = [
            kafka_peer(node, tmp_path / f"kafka-{node}", zookeeper.hosts, settings=settings)
            for node in (1, 2)
        ]
        try:
            for peer in peers:
                peer.launch()
            for peer in peers:
                peer.wait_until_listening()
            Tree(zookeeper.hosts).await_registered({1, 2})
            yield zookeeper.hosts, peers
        finally:
            for peer in peers:
                peer.kill()


@contextmanager
def joined(tmp_path: Path, zookeeper: str) -> Iterator[NodeProcess]:
    """A node of ours, 3, among those of Kafka."""
    node = own_peer(3, tmp_path / "ours", zookeeper)
    try:
        yield node
    finally:
        node.stop()


def test_a_node_of_ours_joins_two_of_kafka_follows_leads_and_leaves(
    two_of_kafka: tuple[str, list[ServerProcess]], topic: str, group: str, tmp_path: Path
) -> None:
    zookeeper, peers = two_of_kafka
    tree, bootstrap = Tree(zookeeper), ",".join(peer.bootstrap for peer in peers)
    create(bootstrap, topic, 2)
    with load(bootstrap, topic, group) as traffic, joined(tmp_path, zookeeper) as node:
        give_a_share(tree, topic)
        assert tree.controller() in {1, 2}
        lose_one_and_let_3_leave(tree, topic, traffic, node, node.stop)


@pytest.mark.nightly
def test_controllers_of_both_kinds_take_over_from_each_other_and_nothing_is_lost(
    two_of_kafka: tuple[str, list[ServerProcess]], topic: str, group: str, tmp_path: Path
) -> None:
    zookeeper, peers = two_of_kafka
    tree, bootstrap = Tree(zookeeper), ",".join(peer.bootstrap for peer in peers)
    create(bootstrap, topic, 2)
    with load(bootstrap, topic, group) as traffic, joined(tmp_path, zookeeper) as node:
        tree.reassign(rotated(topic, [3, 1, 2]))
        await_in_sync(tree, topic, {1, 2, 3})
        kinds = {tree.controller()}
        for number in range(6):
            victim = tree.await_controller({1, 2, 3})
            kinds.add(victim)
            if victim == 3:
                node.kill()
            elif number % 2:
                peers[victim - 1].stop()
            else:
                peers[victim - 1].kill()
            traffic.await_progress()
            tree.await_registered({1, 2, 3} - {victim})
            if victim == 3:
                restart(node)
            else:
                peers[victim - 1].start()
            await_in_sync(tree, topic, {1, 2, 3})
        assert 3 in kinds, "one of our candidates was never elected"


LARGE = b"x" * 20_000
LIVES = 3


def live_and_die(bootstrap: str, topic: str, word: bytes) -> None:
    """One life of a topic with a leader of each kind: it grows, changes a setting, and goes."""
    admin, library = AdminClient({"bootstrap.servers": bootstrap}), Confluent()
    settings = {"max.message.bytes": "100000"}
    admin.create_topics([NewTopic(topic, 2, 2, config=settings)])[topic].result(60)
    library.produce(bootstrap, topic, [Sent(partition=index, value=word) for index in range(2)])
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(60)
    for address in addresses_of(bootstrap):
        eventually(lambda: partition_count(address, topic) == 4, what="all know that it has grown")  # noqa: B023
    library.produce(bootstrap, topic, [Sent(partition=index, value=LARGE) for index in range(4)])
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(60)
    for index in range(4):
        eventually(lambda: is_too_large(bootstrap, topic, index), what="the setting holds")  # noqa: B023
    found = library.read(bootstrap, topic, dict.fromkeys(range(4), "beginning"))
    values = sorted((one.partition, one.value) for one in found if one.value != LARGE)
    assert values == [(0, word), (1, word)]
    admin.delete_topics([topic], operation_timeout=60)[topic].result(60)


def partition_count(address: Address, topic: str) -> int:
    """How many partitions have a leader, as the node at ``address`` knows."""
    with RawConnection(address) as link:
        return len(leaders(link, topic))


def known_controller(port: int) -> int:
    """The controller as Metadata tells it."""
    with RawConnection((LOOPBACK, port)) as link:
        return live_brokers(link)[1]


def is_too_large(bootstrap: str, topic: str, partition: int) -> bool:
    """Whether the leader refuses a record for its size."""
    try:
        Confluent().produce(bootstrap, topic, [Sent(partition=partition, value=LARGE)])
    except KafkaException as failure:
        return "large" in str(failure).lower()
    return False


def test_topics_live_and_die_on_nodes_of_both_kinds_under_controllers_of_both_kinds(
    topic: str, tmp_path: Path
) -> None:
    with Cluster(1, tmp_path / "ours", settings=SHARED) as cluster:
        kafka = kafka_peer(3, tmp_path / "kafka", cluster.zookeeper, secret=cluster.secret)
        tree, bootstrap = Tree(cluster.zookeeper), f"{cluster.bootstrap},{kafka.bootstrap}"
        with kafka:
            tree.await_registered({1, 3})
            for controller in (1, 3):
                if tree.controller() != controller:
                    cluster.pause(1)
                    tree.await_controller({controller})
                    cluster.resume(1)
                    tree.await_registered({1, 3})
                for port in (cluster.node(1).port, kafka.port):
                    eventually(lambda: known_controller(port) == controller, what="both know it")  # noqa: B023
                for life in range(LIVES):
                    live_and_die(bootstrap, topic, b"%d-%d" % (controller, life))
                    tree.await_deleted(topic)
                assert tree.controller() == controller
