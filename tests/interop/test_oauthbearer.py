"""Clients of others log in by bearer tokens: docs/spec/security.md §2 (S35, S36, S38), §9.

One node: a listener that believes what the test's own issuer has signed, one whose logins end
soon, and one that believes what nobody has signed.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaProvider
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonProvider

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.client_config import ClientConfig
from barnabas.client.errors import AuthenticationFailed
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.barnabas_node import barnabas_node
from tests.harness.bearer_tokens import AUDIENCE, ISSUER, bad_tokens, claims, signed, write_jwks
from tests.harness.go_clients import FRANZ, SARAMA, GoClient
from tests.harness.kafka_python_client import FRESH, JOIN_POLL_MS
from tests.harness.kafka_tools import CONSUMER, PRODUCER, TOPICS, Tool
from tests.harness.refused_sockets import collect_refused_sockets
from tests.harness.running_nodes import running
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FROM_FILE: Final = (
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
)
TOPIC: Final = "bearers"
SESSION_S: Final = 30
"""Longer than five seconds: logins are repeated at 80 %, and once a second at most (S38). And so
long that a busy machine has time: librdkafka repeats its own when a tenth of it is left."""
REFUSED_MS: Final = 5000
"""kafka-python tries again for so long, though it was told that it may not."""
WAIT_S: Final = 120.0
BAD: Final = tuple(bad_tokens())


@dataclass
class Bearers:
    """Where each listener is."""

    open: str
    users: str
    unsecured: str
    metrics: int

    def logins(self, listener: str, result: str) -> int:
        pattern = rf'barnabas_authentications_total{{listener="{listener}",[^}}]*'
        pattern += rf'result="{result}"}} (\d+)'
        url = f"http://{LOOPBACK}:{self.metrics}/metrics"
        text = urllib.request.urlopen(url, timeout=120).read().decode()
        return sum(int(count) for count in re.findall(pattern, text))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bearers]:
    directory = tmp_path_factory.mktemp("bearers")
    port, users, unsecured, metrics = free_ports(4)
    own, prefix = "listener.name.users.sasl", "listener.name.unsecured.sasl"
    settings = {
        **STEADY,
        "port": str(port),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},USERS://{LOOPBACK}:{users},"
        f"UNSECURED://{LOOPBACK}:{unsecured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,"
        "UNSECURED:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{own}.oauthbearer.jwks.endpoint.url": write_jwks(directory / "keys.json"),
        f"{own}.oauthbearer.expected.audience": AUDIENCE,
        f"{own}.oauthbearer.expected.issuer": ISSUER,
        f"{own}.oauthbearer.clock.skew.seconds": "1",
        f"{prefix}.oauthbearer.unsecured.enable": "true",
        "listener.name.users.oauthbearer.sasl.jaas.config": f"{MODULE} required;",
        "metrics.listener": f"{LOOPBACK}:{metrics}",
    }
    with EmbeddedZooKeeper() as zookeeper:
        node = barnabas_node(directory, zookeeper.hosts, settings=settings)
        with running(node):
            made = Bearers(
                node.bootstrap, f"{LOOPBACK}:{users}", f"{LOOPBACK}:{unsecured}", metrics
            )
            asyncio.run(_create(made.open))
            yield made
    text = (directory / "node.log").read_text()
    assert "Traceback" not in text
    assert "eyJ" not in text, "a token is in the log"


async def _create(bootstrap: str) -> None:
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=1)])


class LoginRefused(Exception):  # noqa: N818 - what happened
    """In the words of the library."""


def confluent(bootstrap: str, token: Callable[[], str]) -> dict[str, Any]:
    def give(_: str) -> tuple[str, float, str, dict[str, str]]:
        return token(), time.time() + SESSION_S, "alice", {"traceId": "7"}

    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": give,
    }


def by_confluent(settings: dict[str, Any], value: bytes) -> None:
    """Write a record, and read until it is there."""
    refused = threading.Event()
    settings["error_cb"] = lambda error: refused.set() if "uthenticat" in str(error) else None
    producer = Producer({**settings, "message.timeout.ms": 60_000})
    done: list[Any] = []
    producer.produce(TOPIC, value, on_delivery=lambda error, _: done.append(error))

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
    found: list[bytes | None] = []

    def read() -> bool:
        record = consumer.poll(0.1)
        if record is not None and record.error() is None:
            found.append(record.value())
        return value in found

    eventually(read)
    consumer.close()


class OfKafkaPython(KafkaPythonProvider):  # type: ignore[misc]
    def __init__(self, made: str) -> None:
        self._made = made

    def token(self) -> str:
        return self._made


def by_kafka_python(bootstrap: str, token: str, is_good: bool = True) -> None:
    settings = {
        **({} if is_good else {"bootstrap_timeout_ms": REFUSED_MS}),
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": OfKafkaPython(token),
    }
    try:
        producer = KafkaProducer(**settings)
    except KafkaPythonError as error:
        raise LoginRefused from error
    producer.send(TOPIC, b"kafka-python").get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(
        TOPIC, **settings, **FRESH, group_id="kp", auto_offset_reset="earliest"
    )
    found: list[bytes] = []

    def read() -> bool:
        for records in consumer.poll(JOIN_POLL_MS).values():
            found.extend(record.value for record in records)
        return b"kafka-python" in found

    try:
        eventually(read)
    finally:
        consumer.close()


class OfAiokafka(AiokafkaProvider):  # type: ignore[misc]
    def __init__(self, made: str) -> None:
        self._made = made

    async def token(self) -> str:
        return self._made


def by_aiokafka(bootstrap: str, token: str) -> None:
    settings = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": OfAiokafka(token),
    }

    async def run() -> None:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
        except AiokafkaError as error:
            raise LoginRefused from error
        finally:
            await producer.stop()
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(TOPIC, b"aiokafka")
        found: list[bytes] = []
        consumer = AIOKafkaConsumer(TOPIC, **settings, group_id="ak", auto_offset_reset="earliest")
        async with consumer, asyncio.timeout(WAIT_S):
            while b"aiokafka" not in found:
                found.append((await consumer.getone()).value)

    asyncio.run(run())


def by_ours(bootstrap: str, token: str) -> None:
    async def give() -> str:
        return token

    asyncio.run(_list_topics(bootstrap, ClientConfig(**OURS, sasl_oauth_token_provider=give)))


def by_go(client: GoClient, bootstrap: str, token: str) -> None:
    """franz-go or sarama."""
    try:
        (topics,) = client.run("login", bootstrap, Token=token)
    except AssertionError as error:
        raise LoginRefused(str(error)) from error
    assert TOPIC in topics


OURS: Final[dict[str, Any]] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "OAUTHBEARER",
}


async def _list_topics(bootstrap: str, config: ClientConfig) -> None:
    async with Admin.of(bootstrap, config) as admin:
        try:
            topics = await admin.list_topics()
        except AuthenticationFailed as error:
            raise LoginRefused(error.code.name) from error
    assert TOPIC in [topic.name for topic in topics]


CLIENTS: Final[dict[str, Callable[[str, str], None]]] = {
    "confluent": lambda bootstrap, token: by_confluent(
        confluent(bootstrap, lambda: token), b"confluent"
    ),
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
    "ours": by_ours,
    "franz-go": partial(by_go, FRANZ),
    "sarama": partial(by_go, SARAMA),
}


WORDS: Final = {
    "franz-go": "unexpected data in oauth response",
    "ours": "SASL_AUTHENTICATION_FAILED",
    "sarama": "invalid_token",
}
"""In which libraries tell it."""


@pytest.mark.parametrize("library", CLIENTS)
def test_a_client_with_a_signed_token_writes_and_reads(cluster: Bearers, library: str) -> None:
    CLIENTS[library](cluster.users, signed())


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("library", CLIENTS)
def test_a_client_with_a_bad_token_is_refused(cluster: Bearers, library: str, kind: str) -> None:
    """S35, S36: by code 58, but franz-go and aiokafka stop at the reason, which comes before."""
    before = cluster.logins("USERS", "failure")
    token = bad_tokens()[kind]
    log_in = CLIENTS[library]
    if library == "kafka-python":
        log_in = partial(by_kafka_python, is_good=False)
    with pytest.raises(LoginRefused) as refused:
        log_in(cluster.users, token)
    assert WORDS.get(library, "") in str(refused.value)
    collect_refused_sockets()
    assert cluster.logins("USERS", "failure") > before


def test_librdkafka_makes_tokens_that_nobody_signed(cluster: Bearers) -> None:
    settings = confluent(cluster.unsecured, str)
    del settings["oauth_cb"]
    unsecured = {
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "sasl.oauthbearer.config": "principal=alice lifeSeconds=60",
    }
    by_confluent({**settings, **unsecured}, b"unsecured")
    # The same token is no good where signatures are checked.
    with pytest.raises(LoginRefused):
        by_confluent({**settings, **unsecured, "bootstrap.servers": cluster.users}, b"never")


def test_our_own_client_makes_tokens_that_nobody_signed(cluster: Bearers) -> None:
    jaas = f'{MODULE} required unsecuredLoginStringClaim_sub="alice";'
    config = ClientConfig(**OURS, sasl_jaas_config=jaas)
    asyncio.run(_list_topics(cluster.unsecured, config))
    with pytest.raises(LoginRefused):
        asyncio.run(_list_topics(cluster.users, config))


def test_librdkafka_logs_in_again_before_its_token_expires(cluster: Bearers) -> None:
    """S38: nothing is lost, and no connection is closed for a session that ended."""
    errors: list[Any] = []
    made = itertools.count(1)

    def fresh() -> str:
        return signed(claims(exp=time.time() + SESSION_S, jti=str(next(made))))

    producer = Producer(
        {**confluent(cluster.users, fresh), "error_cb": errors.append, "linger.ms": 0}
    )
    before = cluster.logins("USERS", "success")

    def write() -> bool:
        producer.produce(
            TOPIC, b"x", on_delivery=lambda error, _: errors.append(error) if error else None
        )
        producer.poll(0.1)
        return cluster.logins("USERS", "success") >= before + 4

    eventually(write, within_s=240)
    assert producer.flush(WAIT_S) == 0
    assert errors == []


def test_a_client_that_does_not_log_in_again_is_closed_when_its_token_expires(
    cluster: Bearers,
) -> None:
    """aiokafka comes back by a new connection, and with the old token is refused there."""
    token = signed(claims(exp=time.time() + SESSION_S))
    settings = {
        "bootstrap_servers": cluster.users,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": OfAiokafka(token),
        "metadata_max_age_ms": 300,
        "retry_backoff_ms": 100,
        "request_timeout_ms": 20_000,
    }
    before = cluster.logins("USERS", "failure")

    async def run() -> None:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(TOPIC, b"once")
            # It asks for metadata by itself, and connects anew for that when it was disconnected.
            await asyncio.to_thread(
                eventually,
                lambda: cluster.logins("USERS", "failure") > before,
                within_s=240,
                what="the old token is refused",
            )

    asyncio.run(run())
    collect_refused_sockets()


@pytest.mark.kafka
def test_java_logs_in_by_tokens_signed_or_not(
    cluster: Bearers, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S78: Kafka's own login modules, its file of a token, and the token that nobody signs."""
    token, login = tmp_path / "token", tmp_path / "login.properties"
    urls = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{urls}.urls={token.as_uri()}")
    token.write_text(signed(claims(scope="any")))
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={FROM_FILE}\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
        f"sasl.jaas.config={MODULE} required;\n"
    )
    where = ("--bootstrap-server", cluster.users, "--topic", TOPIC)
    tool(PRODUCER, *where, "--producer.config", str(login), given="from Java\n")
    read = tool(
        CONSUMER, *where, "--consumer.config", str(login), "--from-beginning",
        "--max-messages", "1", "--timeout-ms", "120000",
    )  # fmt: skip
    assert read.strip()
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f'sasl.jaas.config={MODULE} required unsecuredLoginStringClaim_sub="alice";\n'
    )
    asked = ("--list", "--command-config", str(login), "--bootstrap-server")
    assert TOPIC in tool(TOPICS, *asked, cluster.unsecured)
    with pytest.raises(AssertionError, match="invalid_token"):
        tool(TOPICS, *asked, cluster.users)
