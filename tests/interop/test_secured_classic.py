"""The classic consumer in a secured cluster: TLS and logins to brokers and to ZooKeeper.

Source: docs/spec/security.md §5 (S68, S69) and §9 (S79); docs/client/classic.md, "TLS and logins".
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from typing import Final

import pytest

from barnabas.client import ConsumerConnector
from barnabas.client.classic.classic_member import ConsumerRebalanceFailed
from barnabas.client.classic.kafka_stream import ConsumerTimeout, KafkaStream
from barnabas.client.producer.producer import Producer
from barnabas.client.properties_file import (
    client_properties,
    read_client_properties,
    read_values,
)
from barnabas.client.zookeeper.interface import ConnectionLost, NoAuth
from barnabas.protocol.zookeeper import znodes
from tests.harness.certificates import Authority
from tests.harness.secured_cluster import USER, SecuredCluster

TOPIC: Final = "orders"
FORBIDDEN: Final = "salaries"
GROUP: Final = "billing"
PASSWORD: Final = secrets.token_hex(16)
RECORDS: Final = 20
WAIT_S: Final = 240.0

Settings = dict[str, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    directory = tmp_path_factory.mktemp("classic") / "secured"
    users = {"consumers": PASSWORD}
    with SecuredCluster(directory, 1, with_certificates=True, zookeeper_users=users) as running:
        for topic in (TOPIC, FORBIDDEN):
            assert running.command("topics", "create", topic, "--partitions", "2") == 0
        rights = ("--topic", TOPIC, "--allow-principal", f"User:{USER}")
        assert running.command("acls", "add", *rights, "--producer") == 0
        consumer = ("--consumer", "--group", GROUP, "--resource-pattern-type", "prefixed")
        assert running.command("acls", "add", *rights, *consumer) == 0
        asyncio.run(fill(running))
        yield running


async def fill(cluster: SecuredCluster) -> None:
    client = read_client_properties(cluster.client(USER, "client.properties")).client
    async with Producer(cluster.bootstrap, client=client) as producer:
        for number in range(RECORDS):
            await producer.send(TOPIC, b"%d" % number, partition=number % 2)


def settings(cluster: SecuredCluster, how: str, group: str, **more: str) -> Settings:
    """A consumer.properties: how brokers are spoken to from the user's file, and ZooKeeper."""
    name = {"login": "client.properties", "certificate": "certificate/client.properties"}[how]
    brokers = read_values(cluster.client(USER, name))
    del brokers["bootstrap.servers"]
    return {
        **brokers,
        **cluster.zookeeper_settings("consumers", PASSWORD),
        "group.id": group,
        "auto.offset.reset": "smallest",
        "rebalance.max.retries": "1",
        "zookeeper.session.timeout.ms": "10000",
        "zookeeper.connection.timeout.ms": "60000",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


async def values(stream: KafkaStream, count: int) -> list[bytes]:
    async with asyncio.timeout(WAIT_S):
        return sorted([(await anext(stream)).value or b"" for _ in range(count)])


EXPECTED: Final = sorted(b"%d" % number for number in range(RECORDS))


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
@pytest.mark.parametrize("how", ["login", "certificate"])
async def test_a_group_is_read_and_its_offsets_are_stored_where_it_says(
    cluster: SecuredCluster, how: str, storage: str
) -> None:
    given = settings(
        cluster, how, f"{GROUP}-{how}-{storage}", offsets_storage=storage,
        rebalance_max_retries="30", auto_commit_enable="false",
    )  # fmt: skip
    async with ConsumerConnector(given) as connector:
        streams = await connector.create_message_streams({TOPIC: 1})
        assert await values(streams[TOPIC][0], RECORDS) == EXPECTED
        await connector.commit_offsets()
        assert connector.writes[storage] == 2
    again = {**given, "consumer.timeout.ms": "1000"}
    async with ConsumerConnector(again) as connector:
        streams = await connector.create_message_streams({TOPIC: 1})
        with pytest.raises(ConsumerTimeout):
            await anext(streams[TOPIC][0])


async def test_two_members_share_partitions_and_one_takes_over(cluster: SecuredCluster) -> None:
    given = settings(cluster, "login", f"{GROUP}-shared", rebalance_max_retries="30")
    async with ConsumerConnector(given) as first:
        await first.create_message_streams({TOPIC: 1})
        async with ConsumerConnector(given) as second:
            await second.create_message_streams({TOPIC: 1})
            await _until_owned(first, 1)
            await _until_owned(second, 1)
        await _until_owned(first, 2)


async def _until_owned(connector: ConsumerConnector, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while len(connector.owned) != count:  # noqa: ASYNC110 - another process answers
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("a wrong password", "SASL_AUTHENTICATION_FAILED"),
        ("another authority", "certificate refused"),
        ("no listener", "no broker has a listener of SASL_PLAINTEXT"),
        ("another listener", "no broker has a listener CLIENTS"),
        ("no right to the group", "GROUP_AUTHORIZATION_FAILED"),
        ("no right to the topic", "TOPIC_AUTHORIZATION_FAILED"),
    ],
)
async def test_who_brokers_refuse_is_told_why(
    cluster: SecuredCluster, mistake: str, told: str
) -> None:
    group = "others" if mistake == "no right to the group" else f"{GROUP}-refused"
    topic = FORBIDDEN if mistake == "no right to the topic" else TOPIC
    given = settings(cluster, "login", group, offsets_storage="kafka", rebalance_backoff_ms="100")
    secret = (cluster.directory / "users" / f"{USER}.password").read_text().strip()
    if mistake == "a wrong password":
        given["sasl.jaas.config"] = given["sasl.jaas.config"].replace(secret, "wrong")
    elif mistake == "another authority":
        strange = Authority("other").trust_store(cluster.directory / "strange.pem")
        given["ssl.truststore.location"] = str(strange)
    elif mistake == "no listener":
        given["security.protocol"] = "SASL_PLAINTEXT"
    elif mistake == "another listener":
        given["broker.listener.name"] = "CLIENTS"
    async with ConsumerConnector(given) as connector:
        with pytest.raises(ConsumerRebalanceFailed, match=told) as refused:
            await connector.create_message_streams({topic: 1})
    assert secret not in repr(refused.value)
    assert PASSWORD not in repr(refused.value)


async def test_a_listener_may_be_named(cluster: SecuredCluster) -> None:
    given = settings(
        cluster, "login", f"{GROUP}-named", broker_listener_name="USERS",
        rebalance_max_retries="30",
    )  # fmt: skip
    async with ConsumerConnector(given) as connector:
        streams = await connector.create_message_streams({TOPIC: 1})
        assert await values(streams[TOPIC][0], RECORDS) == EXPECTED


@pytest.mark.parametrize(
    "mistake", ["no login", "a wrong password", "in clear", "another authority"]
)
async def test_who_zookeeper_refuses_gets_no_session(cluster: SecuredCluster, mistake: str) -> None:
    given = settings(cluster, "login", GROUP, zookeeper_connection_timeout_ms="5000")
    if mistake == "no login":
        del given["zookeeper.jaas.config"]
    elif mistake == "a wrong password":
        given["zookeeper.jaas.config"] = given["zookeeper.jaas.config"].replace(PASSWORD, "wrong")
    elif mistake == "in clear":
        given = {name: text for name, text in given.items() if "zookeeper.ssl" not in name}
    else:
        strange = Authority("other").trust_store(cluster.directory / "strange.pem")
        given["zookeeper.ssl.truststore.location"] = str(strange)
    connector = ConsumerConnector(given)
    with pytest.raises(ConnectionLost) as refused:
        await connector.start()
    assert PASSWORD not in str(refused.value)


async def test_a_consumers_login_owns_nothing_of_the_nodes(cluster: SecuredCluster) -> None:
    """It may write below /consumers, and nothing else; passwords it may not even read."""
    given = cluster.zookeeper_settings("consumers", PASSWORD)
    session = await client_properties(given).zookeeper_security.connect(given["zookeeper.connect"])
    try:
        with pytest.raises(NoAuth):
            await session.delete(znodes.CONTROLLER)
        with pytest.raises(NoAuth):
            await session.get(f"/config/users/{USER}")
    finally:
        await session.close()
