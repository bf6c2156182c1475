"""Delegation tokens with Kafka's own tool and clients, and with a node of Kafka in the cluster.

Source: docs/spec/security.md §2 (S37, S38) and §9 (S78).
"""

from __future__ import annotations

import asyncio
import io
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.admin.token_admin import DelegationToken
from barnabas.client.client_config import ClientConfig
from barnabas.client.connection.connection import Connection
from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.consumer.consumer_config import ConsumerConfig
from barnabas.client.errors import AuthenticationFailed, Disconnected, KafkaError
from barnabas.client.producer.producer import Producer
from barnabas.console.__main__ import main
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.zookeeper import token_znodes
from benchmarks.barnabas_node import barnabas_node
from tests.harness import znodes
from tests.harness.go_clients import FRANZ
from tests.harness.kafka_peers import kafka_peer
from tests.harness.kafka_tools import CONSUMER, PRODUCER, Tool
from tests.harness.running_nodes import running
from tests.harness.waiting import eventually

TOKENS: Final = "org.apache.kafka.tools.DelegationTokenCommand"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
KEY: Final = "Canary.Key"
PASSWORD: Final = "Canary.Password"
SECRET: Final = "between nodes"
TOPIC: Final = "tokens"
ALONE: Final = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "default.replication.factor": "1",
}
DAY_MS: Final = 86_400_000
PATIENT: Final = ("--timeout-ms", "60000")
LIFETIME_MS: Final = 12_000
"""Of a token whose end is waited for: a busy machine is to log in by it before."""


@dataclass
class Tokens:
    """Two nodes of ours, the port of the users' listener of each, and where nobody is asked."""

    zookeeper: str
    open: str
    ports: list[int]

    @property
    def users(self) -> str:
        return ",".join(f"{LOOPBACK}:{port}" for port in self.ports)

    def config(self, user: str = "alice", mechanism: str = "SCRAM-SHA-256") -> ClientConfig:
        return ClientConfig(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=PASSWORD,
        )

    def administered(self, work: Any, config: ClientConfig | None = None, port: int = 0) -> Any:
        """What comes of work with an administrator, of one node where ``port`` is given."""
        where = f"{LOOPBACK}:{port}" if port else self.users

        async def run() -> Any:
            async with Admin.of(where, config or self.config()) as admin:
                return await work(admin)

        return asyncio.run(run())


def settings(port: int, users: int, **more: str) -> dict[str, str]:
    return {
        "port": str(port),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},USERS://{LOOPBACK}:{users}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT,"
        "INTERNAL:SASL_PLAINTEXT",
        "cluster.secret": SECRET,
        "listener.name.users.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "delegation.token.secret.key": KEY,
        **ALONE,
        **more,
    }


def make_users(zookeeper: str, *names: str) -> None:
    for name in names:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
            assert main(["users", "set", name, "--zookeeper", zookeeper]) == 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    directory = tmp_path_factory.mktemp("tokens")
    with EmbeddedZooKeeper() as zookeeper:
        make_users(zookeeper.hosts, "alice", "bob")
        ports = [free_ports(2) for _ in range(2)]
        nodes = [
            barnabas_node(
                directory / str(number),
                zookeeper.hosts,
                node_id=number,
                settings=settings(*chosen),
            )
            for number, chosen in enumerate(ports, start=1)
        ]
        with running(*nodes):
            made = Tokens(zookeeper.hosts, nodes[0].bootstrap, [users for _, users in ports])
            made.administered(
                lambda admin: admin.create_topics(
                    [NewTopic(name=TOPIC, partitions=1, replication_factor=1)]
                )
            )
            yield made
    for number in (1, 2):
        text = (directory / str(number) / "node.log").read_text()
        assert KEY not in text
        assert PASSWORD not in text
        assert "Traceback" not in text


def login_of(token: DelegationToken, mechanism: str = "SCRAM-SHA-512") -> ClientConfig:
    return ClientConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_jaas_config=token.jaas_config,
    )


def comes_in(cluster: Tokens, config: ClientConfig, port: int) -> bool:
    try:
        topics = cluster.administered(lambda admin: admin.list_topics(), config, port)
    except AuthenticationFailed:
        return False
    return TOPIC in [topic.name for topic in topics]


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex((LOOPBACK, port)) == 0


def is_kept_out(cluster: Tokens, config: ClientConfig, port: int) -> bool:
    return not comes_in(cluster, config, port)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_our_own_client_writes_and_reads_by_a_token_made_at_another_node(
    cluster: Tokens, mechanism: str
) -> None:
    first, second = cluster.ports
    token = cluster.administered(
        lambda admin: admin.create_delegation_token(["User:bob"]), port=first
    )
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice",
        "User:alice",
        ("User:bob",),
    )
    login = login_of(token, mechanism)
    eventually(partial(comes_in, cluster, login, second))

    async def run() -> list[bytes | None]:
        value, found = f"by {mechanism}".encode(), []
        async with Producer(cluster.users, client=login) as producer:
            await producer.send(TOPIC, value)
        config = ConsumerConfig(auto_offset_reset="earliest")
        reader = Consumer(cluster.users, TOPIC, group=mechanism, config=config, client=login)
        async with asyncio.timeout(120), reader as consumer:
            async for record in consumer:
                found.append(record.value)
                if record.value == value:
                    break
        return found

    assert f"by {mechanism}".encode() in asyncio.run(run())
    ended = partial(comes_in, cluster, login, first)
    cluster.administered(lambda admin: admin.expire_delegation_token(token.hmac), port=second)
    eventually(lambda: not ended())


def test_franz_go_logs_in_by_a_token(cluster: Tokens) -> None:
    token = cluster.administered(lambda admin: admin.create_delegation_token())
    login = {"User": token.token_id, "Password": token.password}
    for port in cluster.ports:
        eventually(partial(comes_in, cluster, login_of(token), port))
        (topics,) = FRANZ.run("login", f"{LOOPBACK}:{port}", **login)
        assert TOPIC in topics
    with pytest.raises(AssertionError, match="SASL_AUTHENTICATION_FAILED"):
        FRANZ.run("login", cluster.users, **login | {"Password": "guess"})


def test_who_logged_in_by_a_token_or_not_at_all_makes_none(cluster: Tokens) -> None:
    """64, by both ways."""
    token = cluster.administered(lambda admin: admin.create_delegation_token())
    port = cluster.ports[0]
    eventually(partial(comes_in, cluster, login_of(token), port))
    for where, config in ((f"{LOOPBACK}:{port}", login_of(token)), (cluster.open, ClientConfig())):

        async def ask(where: str, config: ClientConfig) -> list[int]:
            codes = []
            async with Admin.of(where, config) as admin:
                for asked in (
                    admin.create_delegation_token(),
                    admin.renew_delegation_token(token.hmac),
                    admin.expire_delegation_token(token.hmac),
                    admin.describe_delegation_tokens(),
                ):
                    with pytest.raises(KafkaError) as refused:
                        await asked
                    codes.append(int(refused.value.code))
            return codes

        assert asyncio.run(ask(where, config)) == [64] * 4


def test_a_stranger_may_neither_renew_nor_end_a_token(cluster: Tokens) -> None:
    token = cluster.administered(lambda admin: admin.create_delegation_token())
    bob = cluster.config("bob")
    for change in ("renew_delegation_token", "expire_delegation_token"):
        with pytest.raises(KafkaError) as refused:
            cluster.administered(lambda admin, name=change: getattr(admin, name)(token.hmac), bob)
        assert refused.value.code == 63


def test_a_connection_ends_with_the_token_that_it_logged_in_by(cluster: Tokens) -> None:
    """S37, S38: the broker tells how long, and keeps to it."""
    token = cluster.administered(
        lambda admin: admin.create_delegation_token(max_lifetime_ms=LIFETIME_MS),
        port=cluster.ports[0],
    )

    async def run() -> None:
        config = login_of(token)
        connection = await Connection.open(
            LOOPBACK, cluster.ports[0], sasl=SaslLogin.of(config), timeout_ms=30_000
        )
        async with asyncio.timeout(120):
            with pytest.raises(Disconnected):
                await asks_on_and_on(connection)
        assert connection._replace_at < float("inf")
        await connection.close()
        with pytest.raises(AuthenticationFailed):
            await Connection.open(LOOPBACK, cluster.ports[0], sasl=SaslLogin.of(config))

    asyncio.run(run())


async def asks_on_and_on(connection: Connection) -> None:
    while True:
        await connection.request(MetadataRequest(topics=[]))
        await asyncio.sleep(0.05)


def command_config(path: Path, jaas: str, mechanism: str = "SCRAM-SHA-256") -> str:
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
    )
    return str(path)


def of_user(path: Path, user: str = "alice") -> str:
    return command_config(path, f'{SCRAM_MODULE} required username="{user}" password="{PASSWORD}";')


def test_tokens_are_made_listed_renewed_and_ended_on_the_command_line(
    cluster: Tokens, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S78: by ids; a secret is printed to who makes it, or asks for it."""
    login = of_user(tmp_path / "alice.properties")

    def typed(*words: str) -> Any:
        capsys.readouterr()
        where = ("--bootstrap", cluster.users, "--command-config", login, *PATIENT, "--json")
        assert main(["tokens", *words, *where]) == 0
        return json.loads(capsys.readouterr().out)

    (made,) = typed("create", "--renewer-principal", "User:bob", "--max-life-time-period", "900000")
    token_id, secret = made["tokenId"], made.pop("hmac")
    assert made["maxTimestamp"] - made["issueTimestamp"] == 900_000
    assert made in typed("list", "--owner-principal", "User:alice")
    assert {**made, "hmac": secret} in typed("list", "--show-secrets")
    renewed = typed("renew", token_id, "--renew-time-period", "400000")
    assert renewed["expiryTimestamp"] <= made["maxTimestamp"]
    ended = typed("expire", token_id)
    assert ended["tokenId"] == token_id
    assert token_id not in [one["tokenId"] for one in typed("list")]
    where = ("--bootstrap", cluster.users, "--command-config", login, *PATIENT)
    assert main(["tokens", "create", *where]) == 0
    shown = capsys.readouterr().out
    assert "TOKEN ID" in shown
    assert "SECRET" in shown
    assert main(["tokens", "renew", token_id, *where]) == 1
    assert "there is no token" in capsys.readouterr().err


TABLE: Final = re.compile(
    r"^([A-Za-z0-9_-]{22})\s+([A-Za-z0-9+/]{86}==)\s+User:(\S+)", re.MULTILINE
)


@pytest.mark.kafka
def test_kafkas_own_tool_and_its_clients_live_on_tokens(
    cluster: Tokens, tool: Tool, tmp_path: Path
) -> None:
    """S78: kafka-delegation-tokens makes, shows, renews and ends; Java logs in by what it made."""
    alice = of_user(tmp_path / "alice.properties")
    asked = ("--bootstrap-server", cluster.users, "--command-config", alice)
    made = tool(
        TOKENS, *asked, "--create", "--max-life-time-period", str(2 * DAY_MS),
        "--renewer-principal", "User:bob",
    )  # fmt: skip
    ((token_id, hmac, owner),) = TABLE.findall(made)
    assert owner == "alice"
    described = tool(TOKENS, *asked, "--describe", "--owner-principal", "User:alice")
    assert (token_id, hmac, owner) in TABLE.findall(described)
    login_line = f'{SCRAM_MODULE} required username="{token_id}" password="{hmac}" tokenauth=true;'
    by_token = command_config(tmp_path / "token.properties", login_line)
    java_login = ClientConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=login_line,
    )
    for port in cluster.ports:  # Java does not try a login again
        eventually(partial(comes_in, cluster, java_login, port))
    where = ("--bootstrap-server", cluster.users, "--topic", TOPIC)
    tool(PRODUCER, *where, "--producer.config", by_token, given="from Java\n")
    read = tool(
        CONSUMER, *where, "--consumer.config", by_token, "--from-beginning",
        "--max-messages", "1", "--timeout-ms", "120000",
    )  # fmt: skip
    assert read.strip()
    renewed = tool(TOKENS, *asked, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation" in renewed
    ended = tool(TOKENS, *asked, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in ended
    assert _end_at(cluster, cluster.ports[1], token_id) == 0


@pytest.mark.kafka
def test_a_node_of_kafka_in_the_same_cluster_sees_the_same_tokens(
    cluster: Tokens, tmp_path: Path
) -> None:
    """Made on either side, a token lets its owner in on the other, until it is ended there."""
    port, users, inner = free_ports(3)
    scram = "listener.name.users.scram-sha-256.sasl.jaas.config"
    peer = kafka_peer(
        9,
        tmp_path,
        cluster.zookeeper,
        secret=SECRET,
        settings={
            "port": str(port),
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},INTERNAL://{LOOPBACK}:{inner},"
            f"USERS://{LOOPBACK}:{users}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,"
            "USERS:SASL_PLAINTEXT",
            "listener.name.users.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            scram: f"{SCRAM_MODULE} required;",
            scram.replace("256", "512"): f"{SCRAM_MODULE} required;",
            "delegation.token.secret.key": KEY,
            **ALONE,
        },
    )
    first = cluster.ports[0]
    before = cluster.administered(lambda admin: admin.create_delegation_token(), port=first)
    with running(peer):
        eventually(partial(is_listening, users), what="Kafka opens listeners one after the other")
        eventually(partial(comes_in, cluster, login_of(before, "SCRAM-SHA-256"), users))
        after = cluster.administered(lambda admin: admin.create_delegation_token(), port=first)
        eventually(partial(comes_in, cluster, login_of(after), users))
        theirs = cluster.administered(
            lambda admin: admin.create_delegation_token(["User:bob"]), port=users
        )
        for own in cluster.ports:
            eventually(partial(comes_in, cluster, login_of(theirs), own))
        data = znodes.data(cluster.zookeeper, token_znodes.token_path(theirs.token_id))
        assert data is not None
        read = token_znodes.TokenRecord.from_json(theirs.token_id, data)
        assert (read.owner, read.renewers, read.expiry_ms) == (
            "User:alice",
            ("User:bob",),
            theirs.expiry_ms,
        )
        assert read.to_json() == data
        ends_ms = cluster.administered(
            lambda admin: admin.renew_delegation_token(theirs.hmac, DAY_MS // 2), port=first
        )
        eventually(lambda: _end_at(cluster, users, theirs.token_id) == ends_ms)
        cluster.administered(lambda admin: admin.expire_delegation_token(after.hmac), port=users)
        eventually(partial(is_kept_out, cluster, login_of(after), first))
        cluster.administered(lambda admin: admin.expire_delegation_token(theirs.hmac), port=first)
        eventually(partial(is_kept_out, cluster, login_of(theirs), users))


def _end_at(cluster: Tokens, port: int, token_id: str) -> int:
    found = cluster.administered(lambda admin: admin.describe_delegation_tokens(), port=port)
    return next((token.expiry_ms for token in found if token.token_id == token_id), 0)
