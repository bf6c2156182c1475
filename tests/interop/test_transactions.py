"""Transactional producers that others wrote, on one node and on three, and a coordinator that dies.

Source: docs/spec/transactions.md §1.1 and §2, checks T1.1, T1.2 and T10.1.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Protocol

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from barnabas.client.admin.admin import Admin
from barnabas.console.development.node import NodeProcess
from tests.harness.committed_readers import READERS, Reader
from tests.harness.confluent_client import Confluent
from tests.harness.deployments import Deployment, OwnCluster, create_topic, is_apache_kafka
from tests.harness.fixtures import Deploy
from tests.harness.raw_calls import find_transaction_coordinator
from tests.harness.raw_connection import Closed, RawConnection
from tests.harness.refused_sockets import collect_refused_sockets
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

LOG = "__transaction_state"
COORDINATOR_NOT_AVAILABLE = 15
WITHIN_S = 240
FIVE_SETTINGS = {
    "cleanup.policy": "compact",
    "compression.type": "uncompressed",
    "min.insync.replicas": "1",
    "segment.bytes": "104857600",
    "unclean.leader.election.enable": "false",
}


class TransactionalProducer(Protocol):
    """What both libraries offer."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: bytes) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class ConfluentProducer:
    """librdkafka; what it calls retriable is tried again, as its manual says."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer: Any = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": 300_000,
            }
        )
        self._retried(self._producer.init_transactions)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)

    def commit(self) -> None:
        self._retried(self._producer.commit_transaction)

    def abort(self) -> None:
        self._retried(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.purge()

    def _retried(self, call: Callable[[float], None]) -> None:
        def done() -> bool:
            try:
                call(10.0)
            except confluent_kafka.KafkaException as problem:
                if not problem.args[0].retriable():
                    raise
                return False
            return True

        eventually(done, within_s=WITHIN_S, what="the call returns")


class KafkaPythonProducer:
    """kafka-python."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer: Any = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=300_000,
            max_block_ms=240_000,
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()


PRODUCERS = (ConfluentProducer, KafkaPythonProducer)


@pytest.fixture(scope="module", params=[1, 3], ids=["one-node", "three-nodes"])
def running(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """Of each size one cluster for all tests that do no harm."""
    cluster = OwnCluster(request.param, STEADY)
    yield cluster
    cluster.stop()


@pytest.fixture
def refused_sockets_are_collected() -> Iterator[None]:
    yield
    collect_refused_sockets()


def log_end(bootstrap: str, topic: str, partition: int, isolation: str) -> int | None:
    """The high watermark, or the last stable offset; None while no leader says so."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": isolation}
    consumer = confluent_kafka.Consumer(settings)
    try:
        asked = confluent_kafka.TopicPartition(topic, partition)
        return int(consumer.get_watermark_offsets(asked, 5)[1])
    except confluent_kafka.KafkaException:
        return None  # it waits for a leader that was killed, and asks no other
    finally:
        consumer.close()


def stable_end(bootstrap: str, topic: str, partition: int) -> int:
    """The high watermark once every transaction has its marker.

    A commit is answered before: who reads up to the end any earlier is told of another.
    """

    def ask() -> int | None:
        end = log_end(bootstrap, topic, partition, "read_uncommitted")
        is_stable = end == log_end(bootstrap, topic, partition, "read_committed")
        return end if is_stable else None

    end = eventually(ask, within_s=WITHIN_S, what="the end of every transaction")
    assert end is not None
    return end


def read(cluster: Deployment, reader: Reader, topic: str, partition: int) -> list[bytes]:
    """The values that a reader of committed records is given, up to the log's end."""
    end = stable_end(cluster.bootstrap, topic, partition)
    rows = reader(cluster.bootstrap, topic, partition, "read_committed", end)
    return [value for _, value in rows]


@pytest.mark.skipif(is_apache_kafka(), reason="of our own clusters")
@pytest.mark.parametrize("producer", PRODUCERS, ids=lambda made: made.__name__)
def test_committed_records_are_read_and_aborted_ones_are_not(
    running: Deployment, topic: str, producer: Callable[[str, str], TransactionalProducer]
) -> None:
    create_topic(running, Confluent(), topic, 2)
    with closing(producer(running.bootstrap, f"id-of-{topic}")) as writer:
        for number in range(6):
            writer.begin()
            for partition in (0, 1):
                for index in range(3):
                    writer.send(topic, partition, b"%d/%d" % (number, index))
            if number % 2:
                writer.abort()
            else:
                writer.commit()
    expected = [b"%d/%d" % (number, index) for number in (0, 2, 4) for index in range(3)]
    for reader in READERS:
        for partition in (0, 1):
            assert read(running, reader, topic, partition) == expected


@pytest.mark.skipif(is_apache_kafka(), reason="Kafka has the same settings and many others")
def test_the_first_question_after_a_coordinator_makes_the_transaction_log(
    deploy_fresh: Deploy,
) -> None:
    """Check T1.1: the topic with its five settings."""
    cluster = deploy_fresh(1)

    def found() -> bool:
        with RawConnection(cluster.addresses[0]) as link:
            code = find_transaction_coordinator(link, "id").error
        assert code in (0, COORDINATOR_NOT_AVAILABLE)
        return code == 0

    eventually(found, within_s=WITHIN_S)
    asked = ConfigResource(ConfigResource.Type.TOPIC, LOG)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    settings = admin.describe_configs([asked])[asked].result(60)
    own = {name: entry.value for name, entry in settings.items() if entry.source == 1}
    assert own == FIVE_SETTINGS


@pytest.mark.skipif(is_apache_kafka(), reason="of our own clusters")
def test_with_too_few_nodes_there_is_no_transaction_log_ever(deploy_fresh: Deploy) -> None:
    """Check T1.2."""
    cluster = deploy_fresh(2, {"transaction.state.log.replication.factor": "3"})
    for address in cluster.addresses:
        with RawConnection(address) as link:
            found = [find_transaction_coordinator(link, "id") for _ in range(2)]
        assert [one.error for one in found] == [COORDINATOR_NOT_AVAILABLE] * 2

    async def names() -> set[str]:
        async with Admin.of(cluster.bootstrap) as admin:
            return {one.name for one in await admin.list_topics()}

    assert LOG not in asyncio.run(names())


@pytest.mark.skipif(is_apache_kafka(), reason="of our own clusters")
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.usefixtures("refused_sockets_are_collected")
@pytest.mark.parametrize("producer", PRODUCERS, ids=lambda made: made.__name__)
def test_transactions_go_on_when_their_coordinator_is_killed(
    topic: str, producer: Callable[[str, str], TransactionalProducer]
) -> None:
    """Check T10.1, in small: kill -9 with a transaction open, and again just after a commit."""
    cluster = OwnCluster(3)
    try:
        create_topic(cluster, Confluent(), topic, 2, 3)
        name = f"id-of-{topic}"
        with closing(producer(cluster.bootstrap, name)) as writer:
            writer.begin()
            for index in range(3):
                writer.send(topic, 0, b"before/%d" % index)
            killed = cluster.nodes[kill_coordinator(cluster, name)]
            if producer is KafkaPythonProducer:
                # It waits for a node that is gone for 30 s each time, and asks no other.
                serve_again(killed)
            for index in range(3):
                writer.send(topic, 1, b"after/%d" % index)
            writer.commit()
            writer.begin()
            writer.send(topic, 0, b"aborted")
            writer.abort()
            if producer is not KafkaPythonProducer:
                serve_again(killed)
            writer.begin()
            writer.send(topic, 1, b"last")
            writer.commit()
            kill_coordinator(cluster, name)
        reader = READERS[0]
        assert read(cluster, reader, topic, 0) == [b"before/%d" % index for index in range(3)]
        assert read(cluster, reader, topic, 1) == [
            *(b"after/%d" % index for index in range(3)),
            b"last",
        ]
    finally:
        cluster.stop()


def serve_again(node: NodeProcess) -> None:
    node.spawn()
    node.let_serve()
    node.wait_ready()


def kill_coordinator(cluster: OwnCluster, transactional_id: str) -> int:
    """kill -9 of the node that coordinates the id; which one it was."""

    def ask() -> int | None:
        """Its port; None while nobody knows it, after the coordinator before it was killed."""
        for address in cluster.addresses:
            with contextlib.suppress(OSError, Closed), RawConnection(address) as link:
                found = find_transaction_coordinator(link, transactional_id)
                if not found.error:
                    return found.port
        return None

    port = eventually(ask, within_s=WITHIN_S, what="a coordinator")
    assert port is not None
    index = [known for _, known in cluster.addresses].index(port)
    cluster.nodes[index].kill()
    return index
