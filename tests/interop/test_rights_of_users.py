"""Users who log in have what their entries allow, and no more: docs/spec/security.md §3 and §9.

One node whose users log in by PLAIN; entries are made by the super user, with ``barnabas acls``'s
own administrator and with confluent-kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import KafkaError as OurError
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.protocol.acl import (
    Acl,
    AclBinding,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.protocol.errors import ErrorCode
from benchmarks.barnabas_node import barnabas_node
from tests.harness.running_nodes import running
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

TOPIC: Final = "orders"
WAIT_S: Final = 180.0
USERS: Final = ("root", "alice", "bob")


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the users' listener, with a topic that nobody but root may touch."""
    plain, port = free_ports(2)
    logins = " ".join(f'user_{name}="{name}-password"' for name in USERS)
    settings = {
        **STEADY,
        "port": str(plain),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{plain},USERS://{LOOPBACK}:{port}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,USERS:SASL_PLAINTEXT"
        ),
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {logins};"
        ),
        "cluster.secret": "rights of users",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:root",
        "offsets.topic.replication.factor": "1",
    }
    with EmbeddedZooKeeper() as zookeeper:
        node = barnabas_node(
            tmp_path_factory.mktemp("rights"), zookeeper.hosts, node_id=1, settings=settings
        )
        with running(node):
            address = f"{LOOPBACK}:{port}"
            topic = NewTopic(name=TOPIC, partitions=1, replication_factor=1)
            as_user(address, "root", lambda admin: admin.create_topics([topic]))
            yield address


def as_user(address: str, name: str, work: Any) -> Any:
    config = ClientConfig(sasl_username=name, sasl_password=f"{name}-password")

    async def run() -> Any:
        async with Admin.of(address, config) as admin:
            return await work(admin)

    return asyncio.run(run())


def login(address: str, name: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": name,
        "sasl.password": f"{name}-password",
        **more,
    }


def allow(address: str, name: str, kind: ResourceType, *operations: Operation) -> None:
    resource = TOPIC if kind is ResourceType.TOPIC else "billing"
    bindings = [
        AclBinding(
            ResourcePattern(kind, resource),
            Acl(f"User:{name}", "*", operation, Permission.ALLOW),
        )
        for operation in operations
    ]
    as_user(address, "root", lambda admin: admin.create_acls(bindings))


def sent(address: str, name: str) -> int | None:
    """The code that a record of this user was refused with; None when it was written."""
    outcome: list[Any] = []
    producer = Producer(login(address, name, **{"message.timeout.ms": 120_000}))
    producer.produce(TOPIC, b"value", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(WAIT_S)
    return None if outcome[0] is None else int(outcome[0].code())


def received(address: str, name: str) -> bytes | int:
    """A record's value, or the code that this user was refused with."""
    consumer = Consumer(
        login(address, name, **{"group.id": "billing", "auto.offset.reset": "earliest"})
    )
    consumer.subscribe([TOPIC])
    try:
        found = consumer.poll(WAIT_S)
        assert found is not None
        error = found.error()
        if error is not None:
            return int(error.code())
        value = found.value()
        assert value is not None
        return value
    except KafkaException as failure:
        return int(failure.args[0].code())
    finally:
        consumer.close()


def test_a_user_has_what_his_entries_allow_and_no_more(users: str) -> None:
    """Each right by itself, and the code of each that is lacking; the other user has none of it."""
    denied_topic = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert sent(users, "alice") == denied_topic
    allow(users, "alice", ResourceType.TOPIC, Operation.WRITE)
    assert sent(users, "alice") is None
    assert sent(users, "bob") == denied_topic
    assert received(users, "alice") == KafkaError.GROUP_AUTHORIZATION_FAILED
    allow(users, "alice", ResourceType.GROUP, Operation.READ)
    assert received(users, "alice") == denied_topic
    allow(users, "alice", ResourceType.TOPIC, Operation.READ)
    eventually(lambda: received(users, "alice") == b"value", what="the record is read")
    assert received(users, "bob") in (denied_topic, KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert sent(users, "root") is None


def test_nobody_but_the_super_user_changes_entries(users: str) -> None:
    """31, and nothing is changed."""
    theft = AclBinding(
        ResourcePattern(ResourceType.TOPIC, TOPIC),
        Acl("User:bob", "*", Operation.ALL, Permission.ALLOW),
    )
    before = as_user(users, "root", lambda admin: admin.describe_acls())
    for work in (
        lambda admin: admin.create_acls([theft]),
        lambda admin: admin.describe_acls(),
    ):
        with pytest.raises(OurError) as refusal:
            as_user(users, "bob", work)
        assert refusal.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert as_user(users, "root", lambda admin: admin.describe_acls()) == before
