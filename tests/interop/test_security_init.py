"""``barnabas security init``: what it writes starts a cluster that lets in whom it should.

Source: docs/spec/security.md §9.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kazoo.client import KazooClient

from barnabas.client.errors import KafkaError as OwnError
from barnabas.client.producer.producer import Producer as OwnProducer
from barnabas.client.properties_file import read_client_properties
from barnabas.console.__main__ import main
from tests.harness.kafka_tools import TOPICS, Tool
from tests.harness.secured_cluster import USER, SecuredCluster

TOPIC: Final = "orders"
FORBIDDEN: Final = "salaries"
GROUP: Final = "billing"
WAIT_S: Final = 180.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path_factory.mktemp("made") / "secured", 2) as running:
        for topic in (TOPIC, FORBIDDEN):
            words = ("topics", "create", topic, "--partitions", "2")
            assert running.command(*words) == 0
        rights = ("--topic", TOPIC, "--allow-principal", f"User:{USER}")
        assert running.command("acls", "add", *rights, "--producer") == 0
        assert running.command("acls", "add", *rights, "--consumer", "--group", GROUP) == 0
        yield running


def test_every_secret_is_its_owners_alone_and_the_review_finds_nothing(
    cluster: SecuredCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    public = {"truststore.pem", "authority.pem"}
    for path in cluster.directory.rglob("*"):
        if "data" in path.parts or path.name.endswith((".log", ".cfg")) or "log4j" in path.name:
            continue  # what the servers wrote
        wanted = 0o700 if path.is_dir() else 0o644 if path.name in public else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    for number in (1, 2):
        assert main(["security", "check", str(cluster.properties(number))]) == 0
    assert "nothing is open" in capsys.readouterr().out


def test_a_second_run_makes_what_is_missing_and_changes_nothing(
    cluster: SecuredCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in _made(cluster.directory)}
    assert main([*cluster.init_words, "--user", "carol"]) == 0
    assert "made 6 files" in capsys.readouterr().out
    after = {path: path.read_bytes() for path in _made(cluster.directory)}
    assert {path: after[path] for path in before} == before
    assert {path.parent.name for path in after.keys() - before.keys()} == {"users", "carol"}
    assert main(["security", "users", str(cluster.directory)]) == 0
    assert capsys.readouterr().out == "set SCRAM-SHA-512 of user carol\n"
    assert main(["security", "users", str(cluster.directory)]) == 0
    assert capsys.readouterr().out == "ZooKeeper has all 3 users\n"


def _made(directory: Path) -> list[Path]:
    suffixes = (".pem", ".key", ".properties", ".json", ".password", ".secret", ".conf")
    return [path for path in directory.rglob("*") if path.name.endswith(suffixes)]


def test_a_user_with_least_rights_works_by_each_family_of_clients(cluster: SecuredCluster) -> None:
    """librdkafka, kafka-python, aiokafka and ours, each by its own file."""
    producer = Producer(cluster.librdkafka())
    producer.produce(TOPIC, b"librdkafka", partition=0)
    assert producer.flush(WAIT_S) == 0
    with KafkaProducer(**cluster.python()) as python:
        python.send(TOPIC, b"kafka-python", partition=0).get(WAIT_S)
    asyncio.run(_send_by_aiokafka(cluster))
    asyncio.run(_send_by_ours(cluster, TOPIC))
    consumer = Consumer(
        {**cluster.librdkafka(), "group.id": GROUP, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([TOPIC])
    found: list[bytes | None] = []
    while len(found) < 4:
        message = consumer.poll(WAIT_S)
        assert message is not None, found
        assert message.error() is None, message.error()
        found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(filter(None, found)) == [b"aiokafka", b"barnabas", b"kafka-python", b"librdkafka"]


async def _send_by_aiokafka(cluster: SecuredCluster) -> None:
    settings = cluster.python()
    settings["ssl_context"] = create_ssl_context(cafile=settings.pop("ssl_cafile"))
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(TOPIC, b"aiokafka", partition=0)


async def _send_by_ours(cluster: SecuredCluster, topic: str) -> None:
    found = read_client_properties(cluster.client(USER, "client.properties"))
    assert found.bootstrap is not None
    async with OwnProducer(found.bootstrap, client=found.client) as producer:
        await producer.send(topic, b"barnabas", partition=0)


@pytest.mark.kafka
def test_kafkas_own_tools_take_the_file_as_it_is(cluster: SecuredCluster, tool: Tool) -> None:
    given = ("--command-config", str(cluster.client("admin", "client.properties")))
    listed = tool(TOPICS, "--bootstrap-server", cluster.bootstrap, "--list", *given)
    assert {TOPIC, FORBIDDEN} <= set(listed.split())


def test_what_was_not_allowed_is_refused_with_its_code(cluster: SecuredCluster) -> None:
    with pytest.raises(OwnError, match=r"TOPIC_AUTHORIZATION_FAILED"):
        asyncio.run(_send_by_ours(cluster, FORBIDDEN))
    assert _refusal(cluster, GROUP, FORBIDDEN) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert _refusal(cluster, "others", TOPIC) == KafkaError.GROUP_AUTHORIZATION_FAILED


def _refusal(cluster: SecuredCluster, group: str, topic: str) -> int:
    """What librdkafka is told that reads there."""
    consumer = Consumer({**cluster.librdkafka(), "group.id": group, "log_level": 0})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(WAIT_S)
        assert message is not None
        error = message.error()
        assert error is not None
        return int(error.code())
    finally:
        consumer.close()


@pytest.mark.parametrize(
    "mistake", ["no login", "another password", "nobody's name", "no TLS", "no trust"]
)
def test_a_stranger_gets_nothing(cluster: SecuredCluster, mistake: str) -> None:
    settings = {**cluster.librdkafka(), "log_level": 0, "socket.timeout.ms": 3000}
    if mistake == "no login":
        settings["security.protocol"] = "SSL"
    elif mistake == "another password":
        settings["sasl.password"] = "wrong"
    elif mistake == "nobody's name":
        settings["sasl.username"] = "mallory"
    elif mistake == "no TLS":
        settings["security.protocol"] = "SASL_PLAINTEXT"
    else:
        del settings["ssl.ca.location"]
    errors: list[KafkaError] = []
    settings["error_cb"] = errors.append
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=5)


def test_zookeeper_tells_a_stranger_nothing_in_clear(cluster: SecuredCluster) -> None:
    client = KazooClient(hosts=f"127.0.0.1:{cluster.zookeeper_port}")
    with pytest.raises(Exception, match=r"time-out|Connection"):
        client.start(timeout=3)
    client.stop()
    client.close()


def test_no_secret_is_in_any_log(cluster: SecuredCluster) -> None:
    """S91."""
    names = ["secrets/cluster.secret", "secrets/zookeeper.password", f"users/{USER}.password"]
    canaries = [(cluster.directory / name).read_text().strip() for name in names]
    logs = [path.read_text(errors="replace") for path in cluster.directory.rglob("*.log")]
    assert len(logs) >= 3
    assert [text for text in canaries for log in logs if text in log] == []
