"""Clients of others log in by PLAIN and SCRAM; users come and go. Source: docs/spec/security.md §2.

Two nodes that prove cluster.secret to each other: what one is told of users, the other knows.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, Producer
from confluent_kafka import admin as confluent_admin
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from barnabas.client.admin.admin import Admin
from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import AuthenticationFailed
from barnabas.console.__main__ import main
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.barnabas_node import barnabas_node
from benchmarks.server_process import ServerProcess
from tests.harness.kafka_python_client import FRESH, JOIN_POLL_MS
from tests.harness.kafka_tools import CONFIGS, TOPICS, Tool
from tests.harness.refused_sockets import collect_refused_sockets
from tests.harness.running_nodes import running
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

CONFLUENT: Final[Any] = confluent_admin
"""Untyped: its names are made at run time."""
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
CANARY: Final = "Canary.Password"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
LIBRARIES: Final = ("confluent", "kafka-python", "aiokafka")
SESSION_MS: Final = 30_000
"""librdkafka repeats its login at 90 %: what is left has to be enough for a busy machine."""
TOPIC: Final = "guarded"
WAIT_S: Final = 120.0


@dataclass
class Guarded:
    """Two nodes with a listener of users on each, and one whose logins end."""

    zookeeper: str
    nodes: list[ServerProcess]
    users: list[int]
    ending: list[int]
    metrics: list[int]

    @property
    def open(self) -> str:
        """Where nobody is asked who he is."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{LOOPBACK}:{port}" for port in self.users)

    def logins(self, listener: str, result: str) -> int:
        """How many there were on both nodes."""
        pattern = rf'barnabas_authentications_total{{listener="{listener}",[^}}]*'
        pattern += rf'result="{result}"}} (\d+)'
        texts = [
            urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=120).read().decode()
            for port in self.metrics
        ]
        return sum(int(count) for text in texts for count in re.findall(pattern, text))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    with EmbeddedZooKeeper() as zookeeper:
        typed(zookeeper.hosts, "set", "bob", password=CANARY)
        ports = [free_ports(4) for _ in range(2)]
        nodes = [
            barnabas_node(
                directory / str(number),
                zookeeper.hosts,
                node_id=number,
                settings=_settings(*chosen),
            )
            for number, chosen in enumerate(ports, start=1)
        ]
        with running(*nodes):
            _, users, ending, metrics = (list(some) for some in zip(*ports, strict=True))
            guarded = Guarded(zookeeper.hosts, nodes, users, ending, metrics)
            topic = CONFLUENT.NewTopic(TOPIC, 1, 2)
            admin = AdminClient({"bootstrap.servers": guarded.open})
            eventually(
                partial(_are_known, admin, len(nodes)), what="the controller knows the nodes"
            )
            for future in admin.create_topics([topic]).values():
                future.result(WAIT_S)
            for node in nodes:  # or a consumer of kafka-python may be assigned none of it for good
                asked = AdminClient({"bootstrap.servers": node.bootstrap})
                eventually(partial(_is_led, asked), what="the node knows the topic's leader")
            yield guarded
    for number in (1, 2):
        text = (directory / str(number) / "node.log").read_text()
        assert CANARY not in text
        assert "Traceback" not in text


def _is_led(admin: AdminClient) -> bool:
    """The topic is in what one node tells, with its leader."""
    topics = admin.list_topics(timeout=WAIT_S).topics
    return TOPIC in topics and all(one.leader >= 0 for one in topics[TOPIC].partitions.values())


def _are_known(admin: AdminClient, nodes: int) -> bool:
    """A node listens before the controller has heard of all others."""
    return len(admin.list_topics(timeout=WAIT_S).brokers) == nodes


def _settings(first: int, users: int, ending: int, metrics: int) -> dict[str, str]:
    known = "listener.name.users"
    return {
        **STEADY,
        "port": str(first),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{first},USERS://{LOOPBACK}:{users},"
        f"ENDING://{LOOPBACK}:{ending}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,"
        "ENDING:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "cluster.secret": "between nodes",
        "offsets.topic.replication.factor": "2",
        "metrics.listener": f"{LOOPBACK}:{metrics}",
        f"{known}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{known}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_bob="{CANARY}";',
        "listener.name.ending.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.ending.connections.max.reauth.ms": str(SESSION_MS),
    }


def typed(zookeeper: str, *words: str, password: str = "") -> None:
    """``barnabas users``, typed; the password comes by standard input."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO(password + "\n"))
        at = ("--zookeeper", zookeeper, "--timeout-ms", "120000")
        assert main(["users", *words, *at]) == 0


def confluent(bootstrap: str, mechanism: str, password: str = CANARY) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": mechanism,
        "sasl.username": "bob",
        "sasl.password": password,
    }


def keywords(bootstrap: str, mechanism: str, password: str = CANARY) -> dict[str, Any]:
    """Of kafka-python and aiokafka."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "bob",
        "sasl_plain_password": password,
    }


class LoginRefused(Exception):  # noqa: N818 - what happened
    """In the words of the library."""


def by_confluent(cluster: Guarded, mechanism: str, password: str = CANARY) -> list[bytes]:
    """Write a record, and read all there are."""
    refused = threading.Event()
    settings = confluent(cluster.bootstrap, mechanism, password)
    settings["error_cb"] = lambda error: refused.set() if "uthenticat" in str(error) else None
    producer = Producer({**settings, "message.timeout.ms": 60_000})
    done: list[Any] = []
    producer.produce(
        TOPIC, f"confluent {mechanism}".encode(), on_delivery=lambda error, _: done.append(error)
    )

    def is_told() -> bool:
        producer.poll(0.05)  # which counts every event that it hands out
        return bool(done) or refused.is_set()

    eventually(is_told)
    if refused.is_set():
        producer.purge()
        raise LoginRefused
    assert done == [None]
    consumer = Consumer({**settings, "group.id": "confluent", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found: list[bytes] = []

    def read() -> bool:
        record = consumer.poll(0.1)
        if record is not None and record.error() is None:
            found.append(record.value() or b"")
        return f"confluent {mechanism}".encode() in found

    eventually(read)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def by_kafka_python(cluster: Guarded, mechanism: str, password: str = CANARY) -> list[bytes]:
    settings = keywords(cluster.bootstrap, mechanism, password)
    value = f"kafka-python {mechanism}".encode()
    try:
        producer = KafkaProducer(**settings)
    except KafkaPythonError as error:
        raise LoginRefused from error
    producer.send(TOPIC, value).get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(
        TOPIC, **settings, **FRESH, group_id="kafka-python", auto_offset_reset="earliest"
    )
    found: list[bytes] = []

    def read() -> bool:
        for records in consumer.poll(JOIN_POLL_MS).values():
            found.extend(record.value for record in records)
        return value in found

    try:
        eventually(read)
    finally:
        consumer.close()
    return found


def by_aiokafka(cluster: Guarded, mechanism: str, password: str = CANARY) -> list[bytes]:
    settings = keywords(cluster.bootstrap, mechanism, password)
    value = f"aiokafka {mechanism}".encode()

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except AiokafkaError as error:
            raise LoginRefused from error
        finally:
            await producer.stop()
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(TOPIC, value)
        found: list[bytes] = []
        async with AIOKafkaConsumer(
            TOPIC, **settings, group_id="aiokafka", auto_offset_reset="earliest"
        ) as consumer:
            async with asyncio.timeout(WAIT_S):
                while value not in found:
                    found.append((await consumer.getone()).value)
        return found

    return asyncio.run(run())


CLIENTS: Final[dict[str, Callable[..., list[bytes]]]] = {
    "confluent": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_logs_in_writes_and_reads_as_a_group(
    cluster: Guarded, library: str, mechanism: str
) -> None:
    assert f"{library} {mechanism}".encode() in CLIENTS[library](cluster, mechanism)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_client_with_another_password_is_told_so(
    cluster: Guarded, library: str, mechanism: str
) -> None:
    """S24: by code 58, which none of them takes for a lost connection."""
    with pytest.raises(LoginRefused):
        CLIENTS[library](cluster, mechanism, "guess")
    collect_refused_sockets()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_our_own_client_logs_in_and_is_told_what_was_wrong(
    cluster: Guarded, mechanism: str
) -> None:
    login: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "bob",
    }
    async with Admin.of(cluster.bootstrap, ClientConfig(**login, sasl_password=CANARY)) as admin:
        assert TOPIC in [topic.name for topic in await admin.list_topics()]
    async with Admin.of(cluster.bootstrap, ClientConfig(**login, sasl_password="guess")) as admin:
        with pytest.raises(AuthenticationFailed):
            await admin.list_topics()


def test_a_user_altered_by_request_comes_in_on_every_node_and_a_removed_one_on_none(
    cluster: Guarded,
) -> None:
    """S32, S33."""
    admin = AdminClient({"bootstrap.servers": cluster.open})
    info = CONFLUENT.ScramCredentialInfo(CONFLUENT.ScramMechanism.SCRAM_SHA_256, 4096)
    _alter(admin, CONFLUENT.UserScramCredentialUpsertion("bob", info, b"another"))
    for port in cluster.users:
        eventually(partial(_comes_in, port, "another"))
        assert not _comes_in(port, CANARY)
    _alter(
        admin, CONFLUENT.UserScramCredentialDeletion("bob", CONFLUENT.ScramMechanism.SCRAM_SHA_256)
    )
    for port in cluster.users:
        eventually(partial(_is_kept_out, port, "another"))
    described = _described(admin)
    assert [one.mechanism.name for one in described.scram_credential_infos] == ["SCRAM_SHA_512"]
    typed(cluster.zookeeper, "set", "bob", password=CANARY)
    for port in cluster.users:
        eventually(partial(_comes_in, port, CANARY))


def _described(admin: Any) -> Any:
    return admin.describe_user_scram_credentials(["bob"])["bob"].result(WAIT_S)


def _alter(admin: AdminClient, change: Any) -> None:
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(WAIT_S)


def _comes_in(
    port: int, password: str, name: str = "bob", mechanism: str = "SCRAM-SHA-256"
) -> bool:
    config = ClientConfig(sasl_mechanism=mechanism, sasl_username=name, sasl_password=password)

    async def ask() -> bool:
        async with Admin.of(f"{LOOPBACK}:{port}", config) as admin:
            try:
                await admin.list_topics()
            except AuthenticationFailed:
                return False
        return True

    return asyncio.run(ask())


def _is_kept_out(port: int, password: str) -> bool:
    return not _comes_in(port, password)


def test_librdkafka_repeats_its_login_while_it_writes(cluster: Guarded) -> None:
    """S38: nothing is lost, and no connection is closed for a session that ended."""
    bootstrap = ",".join(f"{LOOPBACK}:{port}" for port in cluster.ending)
    errors: list[Any] = []
    producer = Producer(
        {**confluent(bootstrap, "SCRAM-SHA-256"), "error_cb": errors.append, "linger.ms": 0}
    )
    sent = 0

    def write() -> bool:
        nonlocal sent
        producer.produce(
            TOPIC, b"x", on_delivery=lambda error, _: errors.append(error) if error else None
        )
        sent += 1
        producer.poll(0.05)
        return cluster.logins("ENDING", "success") >= 6

    eventually(write, within_s=240)
    assert producer.flush(WAIT_S) == 0
    assert errors == []


def test_kafkas_own_tools_make_users_and_log_in_as_them(
    cluster: Guarded, tool: Tool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S33, S34, S78: kafka-configs by request and by ZooKeeper, and the Java client itself."""
    users = ("--entity-type", "users", "--entity-name")
    brokers = ("--bootstrap-server", cluster.open)
    password = "SCRAM-SHA-256=[iterations=8192,password=made],SCRAM-SHA-512=[password=made]"
    tool(CONFIGS, *brokers, *users, "java user", "--alter", "--add-config", password)
    assert listed(cluster, capsys)["java user"] == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}
    by_zookeeper = ("--zookeeper", cluster.zookeeper, *users, "boot")
    tool(CONFIGS, *by_zookeeper, "--alter", "--add-config", "SCRAM-SHA-512=[password=made]")
    for name, mechanism in (
        ("java user", "SCRAM-SHA-256"),
        ("java user", "SCRAM-SHA-512"),
        ("boot", "SCRAM-SHA-512"),
    ):
        for port in cluster.users:  # which hear of it, each in its time
            eventually(partial(_comes_in, port, "made", name, mechanism))
        login = tmp_path / "login.properties"
        login.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={SCRAM_MODULE} required username="{name}" password="made";\n'
        )
        asked = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(login))
        assert TOPIC in tool(TOPICS, *asked, "--list")
    tool(CONFIGS, *brokers, *users, "java user", "--alter", "--delete-config", "SCRAM-SHA-256")
    assert listed(cluster, capsys)["java user"] == {"SCRAM-SHA-512": 4096}


def listed(cluster: Guarded, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, int]]:
    """What ``barnabas users list --json`` prints: iterations by user and mechanism."""
    capsys.readouterr()
    typed(cluster.zookeeper, "list", "--json")
    return {one["name"]: one["mechanisms"] for one in json.loads(capsys.readouterr().out)}


def test_barnabas_users_shows_and_removes_them(
    cluster: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    """S34: names that need escapes, too."""
    typed(cluster.zookeeper, "set", "a/b ~", "--mechanism", "SCRAM-SHA-256", password="p")
    typed(cluster.zookeeper, "list")
    printed = capsys.readouterr().out
    assert re.search(r"a/b ~ +SCRAM-SHA-256 +4096\n", printed)
    assert re.search(r"bob +SCRAM-SHA-512 +4096\n", printed)
    assert listed(cluster, capsys)["a/b ~"] == {"SCRAM-SHA-256": 4096}
    typed(cluster.zookeeper, "remove", "a/b ~")
    assert "a/b ~" not in listed(cluster, capsys)
    assert main(["users", "remove", "nobody", "--zookeeper", cluster.zookeeper]) == 1
