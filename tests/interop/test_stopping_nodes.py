"""Nodes that are stopped, paused, and topics that come and go.

Source: docs/spec/cluster.md §2.16 checks C1, C2, C7 and C8.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from barnabas.console.development.cluster import Cluster
from barnabas.console.development.node import NodeProcess
from barnabas.console.development.ports import LOOPBACK
from barnabas.protocol.zookeeper.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    DELETE_TOPICS,
    ControllerRecord,
    PartitionState,
    partition_state_path,
)
from tests.harness import znodes
from tests.harness.confluent_client import Confluent
from tests.harness.coordinators import coordinator
from tests.harness.deployments import await_leaders_at
from tests.harness.raw_calls import (
    NO_ERROR,
    NOT_COORDINATOR,
    fetch_offsets,
    find_coordinator,
    live_brokers,
)
from tests.harness.raw_connection import Closed, RawConnection, addresses_of
from tests.harness.records import Sent, numbered
from tests.harness.steady_settings import STEADY
from tests.harness.traffic import Activity, IdempotentProducer
from tests.harness.waiting import eventually

NODES = 3
PARTITIONS = 3
LIVES = 6
LIVES_OF_A_NIGHT = 50
WAIT_S = 60.0


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    """Of which none is taken for dead that only has to wait for a core."""
    with Cluster(NODES, settings=STEADY) as cluster:
        yield cluster


@pytest.fixture
def quick_nodes() -> Iterator[Cluster]:
    """With the limits that ``barnabas up`` has."""
    with Cluster(NODES) as cluster:
        yield cluster


def create(cluster: Cluster, topic: str, partitions: int = PARTITIONS, factor: int = NODES) -> None:
    """Create a topic, with all its replicas in sync, and wait until every node knows it."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wanted = NewTopic(topic, partitions, replication_factor=factor)
    admin.create_topics([wanted])[topic].result(WAIT_S)
    await_leaders_at(addresses_of(cluster.bootstrap), topic, partitions)


def state(cluster: Cluster, topic: str, partition: int) -> PartitionState:
    data = znodes.data(cluster.zookeeper, partition_state_path(topic, partition))
    assert data is not None
    return PartitionState.from_json(data)


def is_whole(cluster: Cluster, topic: str) -> bool:
    return all(len(state(cluster, topic, index).isr) == NODES for index in range(PARTITIONS))


def epoch(cluster: Cluster) -> int:
    return int(znodes.data(cluster.zookeeper, CONTROLLER_EPOCH) or b"0")


def controller(cluster: Cluster) -> NodeProcess | None:
    data = znodes.data(cluster.zookeeper, CONTROLLER)
    return cluster.node(ControllerRecord.from_json(data).broker_id) if data else None


def known_controller(node: NodeProcess) -> int:
    with RawConnection(("127.0.0.1", node.port)) as link:
        return live_brokers(link)[1]


class LeaderWatch(Activity):
    """Asks who leads, again and again; notes every partition that nobody leads."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__()
        self.leaderless: list[int] = []
        self.polls = 0
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self._topic = topic

    def repeat(self) -> None:
        while not self.is_over.wait(0.01):
            try:
                told = self._admin.list_topics(self._topic, timeout=5).topics[self._topic]
            except KafkaException:
                continue  # the node that was asked is the one that stops
            self.polls += 1
            self.leaderless += [p.id for p in told.partitions.values() if p.leader < 0]


def test_a_node_that_stops_in_order_costs_no_send_and_leaves_nothing_leaderless(
    nodes: Cluster, topic: str
) -> None:
    """docs/spec/cluster.md §2.16 check C7, for each node in turn, the controller's too."""
    create(nodes, topic)
    with (
        IdempotentProducer(nodes.bootstrap, topic, PARTITIONS) as producer,
        LeaderWatch(nodes, topic) as watch,
    ):
        for node in nodes.nodes:
            written = len(producer.acknowledged)
            node.stop()
            eventually(lambda: len(producer.acknowledged) > written + 100, within_s=240)  # noqa: B023
            node.spawn()
            node.let_serve()
            node.wait_ready()
            eventually(lambda: is_whole(nodes, topic), within_s=240, what="all in sync again")
    assert producer.refused == []
    assert watch.polls > 0
    assert watch.leaderless == []


def test_nodes_stop_in_order_while_zookeeper_answers_nothing(
    quick_nodes: Cluster, topic: str
) -> None:
    """docs/spec/cluster.md §6 pitfall 23: nothing on the way to the end waits for ZooKeeper without
    a limit.
    """
    nodes = quick_nodes
    create(nodes, topic)
    Confluent().produce(nodes.bootstrap, topic, numbered(0, 100))
    assert nodes.zookeeper_pid is not None
    os.kill(nodes.zookeeper_pid, signal.SIGSTOP)
    try:
        for node in nodes.nodes:
            node.ask_to_stop()
        for node in nodes.nodes:
            node.wait_stopped()  # which kills, and that would be seen in the exit code
    finally:
        os.kill(nodes.zookeeper_pid, signal.SIGCONT)
    assert [node.exit_code for node in nodes.nodes] == [0] * NODES
    for node in nodes.nodes:
        node.spawn()
        node.let_serve()
    for node in nodes.nodes:
        node.wait_ready()
    beginning = dict.fromkeys(range(PARTITIONS), "beginning")
    assert len(Confluent().read(nodes.bootstrap, topic, beginning)) == 100


class Lookups(Activity):
    """Asks one node for the coordinators of groups, and those for offsets, again and again."""

    def __init__(self, asked: NodeProcess, groups: Sequence[str]) -> None:
        super().__init__()
        self.answered_by_itself: list[int] = []
        """The codes of the node that was asked, where it named itself."""
        self.named_others = 0
        self.naps = 0
        """Raised before a pause: who slept between two answers may have lost the role."""
        self._asked = (LOOPBACK, asked.port)
        self._groups = groups

    def repeat(self) -> None:
        while not self.is_over.wait(0.001):
            for group in self._groups:
                with contextlib.suppress(OSError, Closed):
                    self._look_up(group)

    def _look_up(self, group: str) -> None:
        naps = self.naps
        with RawConnection(self._asked) as link:
            found = find_coordinator(link, group)
            if (found.host, found.port) == self._asked and found.error == NO_ERROR:
                _, code = fetch_offsets(link, group, "any", [0])
                if naps == self.naps:
                    self.answered_by_itself.append(code)
            elif found.error == NO_ERROR:
                self.named_others += 1


def test_a_node_that_slept_names_itself_as_coordinator_only_once_it_is_one(
    nodes: Cluster, topic: str
) -> None:
    """librdkafka's AdminClient (2.16) ends its process when the one it was sent to says 16."""
    create(nodes, topic)
    groups = [f"{topic}-{index}" for index in range(12)]
    for group in groups:
        coordinator(addresses_of(nodes.bootstrap), group)
    slept = nodes.nodes[-1]
    others = nodes.nodes[:-1]
    with Lookups(slept, groups) as lookups:
        eventually(lambda: lookups.answered_by_itself, what="it coordinates")
        lookups.naps += 1
        slept.pause()
        try:
            for group in groups:
                coordinator([(LOOPBACK, node.port) for node in others], group)
            eventually(lambda: not is_whole(nodes, topic), what="it is out of the in-sync sets")
        finally:
            slept.resume()
        before = lookups.named_others
        eventually(lambda: is_whole(nodes, topic), within_s=240, what="all in sync again")
        eventually(lambda: lookups.named_others > before + len(groups), what="it names others")
    assert NOT_COORDINATOR not in lookups.answered_by_itself


def test_a_controller_that_slept_through_the_election_of_another_rules_no_more(
    nodes: Cluster, topic: str
) -> None:
    """docs/spec/cluster.md §2.16 checks C1 and C2: one epoch more, known everywhere; the old one
    writes nothing.
    """
    create(nodes, topic)
    first = controller(nodes)
    assert first is not None
    before = epoch(nodes)
    first.pause()
    try:
        second = eventually(
            lambda: found if (found := controller(nodes)) not in (None, first) else None,
            what="another controller",
        )
        assert second is not None
        assert epoch(nodes) == before + 1
        others = [node for node in nodes.nodes if node is not first]
        second_id = nodes.nodes.index(second) + 1
        for node in others:
            eventually(lambda: known_controller(node) == second_id, what="all know it")  # noqa: B023
    finally:
        first.resume()
    eventually(lambda: known_controller(first) == second_id, what="the old one knows it, too")
    eventually(lambda: is_whole(nodes, topic), within_s=240, what="all in sync again")
    assert (controller(nodes), epoch(nodes)) == (second, before + 1)
    assert all(
        state(nodes, topic, index).controller_epoch <= before + 1 for index in range(PARTITIONS)
    )


def lives_of_a_topic(cluster: Cluster, topic: str, count: int) -> None:
    """Create, fill and delete a topic; nothing of one life is seen in the next."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    library = Confluent()
    for life in range(count):
        partitions = 1 + life % PARTITIONS
        create(cluster, topic, partitions, factor=1 + life % NODES)
        sent = [Sent(partition=index, value=b"life %d" % life) for index in range(partitions)]
        library.produce(cluster.bootstrap, topic, sent)
        beginning = dict.fromkeys(range(partitions), "beginning")
        found = library.read(cluster.bootstrap, topic, beginning)
        assert sorted(one.partition for one in found) == list(range(partitions))
        assert {one.value for one in found} == {b"life %d" % life}
        admin.delete_topics([topic], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    with znodes.session(cluster.zookeeper) as client:
        assert client.get_children(DELETE_TOPICS) == []


def test_a_topic_may_come_and_go_many_times_and_never_finds_its_old_records(
    nodes: Cluster, topic: str
) -> None:
    """docs/spec/cluster.md §2.16 check C8."""
    lives_of_a_topic(nodes, topic, LIVES)


@pytest.mark.nightly
def test_a_topic_may_come_and_go_fifty_times(nodes: Cluster, topic: str) -> None:
    """docs/spec/cluster.md §2.16 check C8, as often as it says."""
    lives_of_a_topic(nodes, topic, LIVES_OF_A_NIGHT)


def test_a_topic_with_a_replica_on_a_dead_node_is_deleted_when_the_node_is_back(
    nodes: Cluster, topic: str
) -> None:
    """docs/spec/cluster.md §2.16 check C8, its end."""
    create(nodes, topic)
    dead = next(node for node in nodes.nodes if node is not controller(nodes))
    dead.kill()
    dead_id = nodes.nodes.index(dead) + 1
    eventually(
        lambda: str(dead_id) not in znodes.registered_brokers(nodes.zookeeper), what="it is gone"
    )
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    admin.delete_topics([topic], operation_timeout=0.5)[topic].exception(WAIT_S)
    with znodes.session(nodes.zookeeper) as client:
        assert client.get_children(DELETE_TOPICS) == [topic]
        dead.spawn()
        dead.let_serve()
        dead.wait_ready()
        eventually(
            lambda: not client.get_children(DELETE_TOPICS), within_s=240, what="the topic is gone"
        )
        assert topic not in client.get_children("/brokers/topics")
