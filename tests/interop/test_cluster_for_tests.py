"""A cluster for tests that asks who is there: users, settings for each client, and rights.

Source: docs/testing.md, "TLS, logins and rights".
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaProducer

from barnabas.client import SyncProducer
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.failure import Failure
from barnabas.console.development.cluster import Cluster
from barnabas.console.development.secured_user import SecuredUser
from tests.harness.steady_settings import STEADY

NODES: Final = 2
WAIT_S: Final = 120.0
BY: Final = pytest.mark.parametrize("by_certificate", [False, True], ids=["login", "certificate"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(NODES, settings=STEADY, secured=True) as running:
        yield running


def by_confluent(user: SecuredUser, topic: str, **how: Any) -> None:
    producer = Producer({**user.confluent_kafka(**how), "message.timeout.ms": 90_000})
    told: list[Any] = []
    producer.produce(topic, b"confluent-kafka", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(WAIT_S) == 0
    if told[0] is not None:
        raise KafkaException(told[0])


def by_kafka_python(user: SecuredUser, topic: str, **how: Any) -> None:
    with KafkaProducer(**user.kafka_python(**how)) as producer:
        producer.send(topic, b"kafka-python").get(WAIT_S)


def by_aiokafka(user: SecuredUser, topic: str, **how: Any) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(**user.aiokafka(**how)) as producer:
            await producer.send_and_wait(topic, b"aiokafka")

    asyncio.run(run())


def by_ours(user: SecuredUser, topic: str, **how: Any) -> None:
    bootstrap, config = user.barnabas(**how)
    with SyncProducer(bootstrap, client=config) as producer:
        producer.send(topic, b"barnabas")


CLIENTS: Final[dict[str, Callable[..., None]]] = {
    "confluent-kafka": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "barnabas": by_ours,
}


@BY
@pytest.mark.parametrize("client", CLIENTS)
def test_settings_are_ready_to_use(
    cluster: Cluster, topic: str, client: str, by_certificate: bool
) -> None:
    cluster.create_topic(topic)
    CLIENTS[client](cluster.user("alice"), topic, by_certificate=by_certificate)
    assert read(cluster.user("bob"), topic, f"{topic}-readers") == [client.encode()]


def read(user: SecuredUser, topic: str, group: str) -> list[bytes | None]:
    """One record, by SCRAM-SHA-256."""
    given = user.confluent_kafka(mechanism="SCRAM-SHA-256")
    consumer = Consumer({**given, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error():
            raise KafkaException(message.error())
        return [message.value()]
    finally:
        consumer.close()


def test_rights_hold_from_the_first_entry_on(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    alice, bob = cluster.user("alice"), cluster.user("bob")
    by_ours(bob, topic)
    cluster.allow("alice", "Write", topic=topic)
    by_ours(alice, topic)
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        by_ours(bob, topic)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        read(alice, topic, "anybody")
    cluster.allow("alice", "Read", topic=topic, group=f"{topic}-", prefixed=True)
    assert read(alice, topic, f"{topic}-readers") == [b"barnabas"]
    cluster.deny("alice", "All", topic=topic)
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        by_ours(alice, topic)


def test_a_user_is_the_same_until_another_password_is_given(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    first = cluster.user("carol", "one")
    assert cluster.user("carol") is first
    second = cluster.user("carol", "two")
    by_ours(second, topic)
    with pytest.raises(KafkaError, match="SASL_AUTHENTICATION_FAILED"):
        by_ours(first, topic)
    assert "two" not in repr(second)


def test_what_is_secret_is_its_owners_alone(cluster: Cluster) -> None:
    user = cluster.user("alice")
    key = cluster.directory / "authority" / "authority.key"
    for path in (user.keystore, cluster.node(1).properties, key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_restarted_nodes_know_their_users(cluster: Cluster, topic: str) -> None:
    cluster.create_topic(topic)
    user = cluster.user("alice")
    cluster.kill(2)
    cluster.restart(2)
    by_ours(user, topic)


@pytest.mark.parametrize(
    ("words", "resources", "reason"),
    [
        (("Reed",), {"topic": "t"}, "Reed: is no operation"),
        ((), {"topic": "t"}, "say which operations"),
        (("Read",), {}, "say which operations"),
    ],
)
def test_rights_that_are_none_are_refused(
    cluster: Cluster, words: tuple[str, ...], resources: dict[str, str], reason: str
) -> None:
    with pytest.raises(Failure, match=reason):
        cluster.allow("alice", *words, topic=resources.get("topic", ""))


def test_a_plain_cluster_says_what_it_lacks() -> None:
    plain = Cluster(1)
    with pytest.raises(Failure, match="secured=True"):
        plain.user("alice")
    with pytest.raises(Failure, match="secured=True"):
        plain.allow("alice", "Read", topic="t")


def test_data_that_are_kept_keep_authority_and_users(tmp_path: Path, topic: str) -> None:
    with Cluster(1, tmp_path / "kept", settings=STEADY, secured=True) as first:
        first.create_topic(topic)
        trust = first.user("alice").trust.read_bytes()
    with Cluster(1, tmp_path / "kept", settings=STEADY, secured=True) as second:
        alice = second.user("alice")
        assert alice.trust.read_bytes() == trust
        by_ours(alice, topic)
