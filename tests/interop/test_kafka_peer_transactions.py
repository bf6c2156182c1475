"""One cluster of Apache Kafka 3.9 and of our nodes: transactions outlive their coordinators.

Check T10.3: Kafka's coordinator with our partitions, ours with Kafka's, and failover between the
two with ends that are decided and not carried out yet.
Source: docs/spec/transactions.md §3.2 and §3.4; docs/kafka-peers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.errors import KafkaError
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK
from barnabas.coordinator.ports import TRANSACTION_TOPIC
from tests.harness.confluent_client import Confluent
from tests.harness.copiers import FRANZ_COPIER, JAVA_COPIERS, CopierKind
from tests.harness.kafka_alone import values_shown
from tests.harness.kafka_peers import (
    OFFSETS,
    OFFSETS_PARTITIONS,
    SHARED,
    Tree,
    kafka_peer,
    own_peer,
    restart,
)
from tests.harness.raw_connection import Address, addresses_of
from tests.harness.raw_transactions import RawTransactionalProducer
from tests.harness.waiting import eventually
from tests.interop.test_copies_in_transactions import Copying, copied, copy_all, until_it_reads
from tests.interop.test_transaction_handover import described, stable

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]

STATE_PARTITIONS: Final = 3
SETTINGS: Final = {
    **SHARED,
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}
STATE: Final = (
    *((TRANSACTION_TOPIC, index) for index in range(STATE_PARTITIONS)),
    *((OFFSETS, index) for index in range(OFFSETS_PARTITIONS)),
)
"""Everything that coordinators are leaders of."""
PAST_ANY_RETRY_S: Final = 240.0
MOVES: Final = 3


class Mixed:
    """Three nodes, at least one of each kind; what is killed is started again by its number."""

    def __init__(self, zookeeper: str) -> None:
        self.tree = Tree(zookeeper)
        self._nodes: dict[int, tuple[str, Callable[[], object], Callable[[], object]]] = {}

    def add(
        self, number: int, address: str, kill: Callable[[], object], start: Callable[[], object]
    ) -> None:
        """A node that runs."""
        self._nodes[number] = (address, kill, start)

    @property
    def bootstrap(self) -> str:
        """All three."""
        return ",".join(address for address, *_ in self._nodes.values())

    @property
    def addresses(self) -> Sequence[Address]:
        """Where each listens."""
        return addresses_of(self.bootstrap)

    def at(self, number: int) -> str:
        """The address of one."""
        return self._nodes[number][0]

    def kill(self, number: int) -> None:
        """As ``kill -9`` does."""
        self._nodes[number][1]()

    def revive(self, number: int) -> None:
        """Start it again, once the cluster has noticed that it was gone: Kafka insists on that."""
        tree = self.tree
        eventually(
            lambda: not tree.is_registered(number), within_s=120, what=f"{number} is noticed"
        )
        self._nodes[number][2]()

    def give(self, plan: dict[tuple[str, int], list[int]]) -> None:
        """Have replicas where the plan says, led by the first of each; return when they are."""
        self.tree.reassign(plan)
        for (name, index), nodes in plan.items():
            eventually(
                lambda: set(self.tree.state(name, index).isr) == set(nodes),  # noqa: B023
                within_s=PAST_ANY_RETRY_S,
                what=f"{name}-{index} is in sync on {nodes}",
            )
        self.tree.prefer(plan)
        for (name, index), nodes in plan.items():
            self.await_leader(name, index, nodes[0])

    def coordinate(self, first: int, second: int) -> None:
        """Have these two nodes keep what coordinators keep, and the first be the coordinator."""
        self.give({place: [first, second] for place in STATE})

    def await_leader(self, topic: str, partition: int, node: int) -> None:
        """Return when the node leads the partition."""
        eventually(
            lambda: self.tree.state(topic, partition).leader == node,
            within_s=PAST_ANY_RETRY_S,
            what=f"{node} leads {topic}-{partition}",
        )


@contextmanager
def two_of_ours(directory: Path) -> Iterator[Mixed]:
    """Nodes 1 and 2 are ours, with a secret and beacons, 3 is Kafka's."""
    with Cluster(2, directory / "ours", settings=SETTINGS) as cluster, ExitStack() as stack:
        mixed = Mixed(cluster.zookeeper)
        for number in (1, 2):
            node = cluster.node(number)
            address = f"{LOOPBACK}:{node.port}"
            mixed.add(number, address, node.kill, partial(restart, node))
        peer = kafka_peer(
            3, directory / "kafka", cluster.zookeeper, secret=cluster.secret, settings=SETTINGS
        )
        stack.callback(peer.stop)
        peer.start()
        mixed.add(3, peer.bootstrap, peer.kill, peer.start)
        mixed.tree.await_registered({1, 2, 3})
        yield mixed


@contextmanager
def two_of_kafka(directory: Path) -> Iterator[Mixed]:
    """Nodes 1 and 2 are Kafka's, 3 is ours."""
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper, ExitStack() as stack:
        mixed = Mixed(zookeeper.hosts)
        peers = [
            kafka_peer(number, directory / f"kafka-{number}", zookeeper.hosts, settings=SETTINGS)
            for number in (1, 2)
        ]
        for number, peer in enumerate(peers, start=1):
            stack.callback(peer.stop)
            peer.launch()
            mixed.add(number, peer.bootstrap, peer.kill, peer.start)
        for peer in peers:
            peer.wait_until_listening()
        mixed.tree.await_registered({1, 2})
        Confluent().create_topic(peers[0].bootstrap, "first", 1)  # ours waits for a topic
        node = own_peer(3, directory / "ours", zookeeper.hosts, SETTINGS)
        stack.callback(node.stop)
        mixed.add(3, node.address, node.kill, partial(restart, node))
        mixed.tree.await_registered({1, 2, 3})
        yield mixed


def transact(producer: RawTransactionalProducer, topic: str, partition: int, value: bytes) -> None:
    """One record in the open transaction; asked for again while a leader cannot verify it."""

    def is_taken() -> bool:
        code = producer.send(topic, partition, value).error
        if code:
            producer.forget(topic, partition, 1)
        assert code in (0, 3, 5, 6, 7, 13, 14, 15, 16, 19), code
        return code == 0

    eventually(is_taken, within_s=PAST_ANY_RETRY_S, what=f"{value!r} is taken")


def state_at(bootstrap: str, transactional_id: str) -> str:
    """The state of an id as its coordinator tells it; "" while there is none that could."""
    try:
        return described(bootstrap, transactional_id).state
    except (KafkaError, OSError, TimeoutError):
        return ""


def await_state(bootstrap: str, transactional_id: str, state: str) -> None:
    eventually(
        lambda: state_at(bootstrap, transactional_id) == state,
        within_s=PAST_ANY_RETRY_S,
        what=f"{transactional_id} is in {state}",
    )


def stable_at(bootstrap: str, group: str, topic: str) -> int | None:
    """The group's offset; None while there is none, or a transaction may change it."""
    try:
        return stable(bootstrap, group, topic)
    except (KafkaError, OSError, TimeoutError):
        return None


def create(mixed: Mixed, topic: str, group: str, node: int) -> None:
    """Have the topic with two partitions, and both topics of coordinators."""
    Confluent().create_topic(mixed.bootstrap, topic, 2)
    opening = RawTransactionalProducer(mixed.at(node), f"{topic}-opening")
    opening.start()
    opening.add(topic, 0)
    opening.send_offsets(group, topic, {1: 1})
    opening.end(is_commit=False)
    await_state(mixed.at(node), opening.transactional_id, "CompleteAbort")


@pytest.mark.parametrize(
    ("start", "first", "heir", "away"),
    [
        pytest.param(two_of_ours, 1, 3, 2, id="from ours to Kafka, a partition with ours"),
        pytest.param(two_of_ours, 3, 1, 2, id="from Kafka to ours, a partition with ours"),
        pytest.param(two_of_kafka, 3, 1, 2, id="from ours to Kafka, a partition with Kafka"),
        pytest.param(two_of_kafka, 1, 3, 2, id="from Kafka to ours, a partition with Kafka"),
    ],
)
def test_ends_that_one_kind_decided_are_carried_out_by_the_other(
    start: Callable[[Path], AbstractContextManager[Mixed]],
    first: int,
    heir: int,
    away: int,
    topic: str,
    group: str,
    tmp_path: Path,
) -> None:
    """T10.3: ``first`` decides while the leader of one partition is away, and is killed."""
    with start(tmp_path) as mixed:
        create(mixed, topic, group, heir)
        mixed.give({(topic, 0): [heir], (topic, 1): [away]})
        mixed.coordinate(first, heir)

        kept, gone = (
            RawTransactionalProducer(mixed.at(heir), f"{topic}-{name}") for name in ("kept", "gone")
        )
        for producer, name in ((kept, b"kept"), (gone, b"gone")):
            producer.start()
            producer.add(topic, 0, 1)
            for partition in (0, 1):
                transact(producer, topic, partition, name)
        kept.send_offsets(group, topic, {0: 5})
        gone.send_offsets(f"{group}-gone", topic, {0: 9})
        mixed.kill(away)
        kept.end(is_commit=True)
        gone.end(is_commit=False)
        await_state(mixed.at(first), kept.transactional_id, "PrepareCommit")
        await_state(mixed.at(first), gone.transactional_id, "PrepareAbort")
        mixed.kill(first)
        for place in STATE:
            mixed.await_leader(*place, heir)
        await_state(mixed.at(heir), kept.transactional_id, "PrepareCommit")
        await_state(mixed.at(heir), gone.transactional_id, "PrepareAbort")
        mixed.revive(away)
        await_state(mixed.at(heir), kept.transactional_id, "CompleteCommit")
        await_state(mixed.at(heir), gone.transactional_id, "CompleteAbort")
        for partition in (0, 1):
            assert values_shown(mixed.at(heir), topic, partition, "read_committed") == [b"kept"]
        assert eventually(lambda: stable_at(mixed.at(heir), group, topic), what="an offset") == 5
        assert stable_at(mixed.at(heir), f"{group}-gone", topic) is None

        # An open transaction goes back, with a coordinator that is stopped by nobody.
        kept.add(topic, 0)
        transact(kept, topic, 0, b"second")
        mixed.revive(first)
        mixed.coordinate(first, heir)
        kept.add(topic, 1)
        transact(kept, topic, 1, b"third")
        kept.end(is_commit=True)
        await_state(mixed.at(heir), kept.transactional_id, "CompleteCommit")
        for partition, last in ((0, b"second"), (1, b"third")):
            values = values_shown(mixed.at(heir), topic, partition, "read_committed")
            assert values == [b"kept", last]


@pytest.mark.parametrize("kind", [FRANZ_COPIER, JAVA_COPIERS[0]], ids=lambda kind: kind.name)
def test_a_copy_goes_on_while_its_coordinators_move_between_kafka_and_us(
    kind: CopierKind, topic: str, group: str, tmp_path: Path
) -> None:
    """Both coordinators of open transactions move to Kafka and back; each record is there once."""
    with two_of_ours(tmp_path) as mixed:
        copying = Copying(mixed, kind, topic, group, "range")  # type: ignore[arg-type]
        copier = copying.start("one")
        try:
            copying.produce()
            copy_all(copying, copier)
            mixed.coordinate(1, 3)
            for number in range(2 * MOVES):
                copying.produce()
                until_it_reads(copier, "open")
                mixed.coordinate(*((1, 3) if number % 2 else (3, 1)))
                copier.do("end")
                eventually(lambda: copied(copier).is_committed, what="it commits again")
                copy_all(copying, copier)
            copier.close()
            assert copying.is_copied()
            copying.verify()
        finally:
            copying.end()
