"""Java repeats its login by tokens before its session ends: docs/spec/security.md §2 (S38).

By a delegation token, and by a bearer token from a file, on a listener where a login holds for two
seconds. No connection may be closed for a session that ended, which the node would log.
"""

from __future__ import annotations

import asyncio
import io
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import NewTopic
from barnabas.client.client_config import ClientConfig
from barnabas.console.__main__ import main
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.barnabas_node import barnabas_node
from tests.harness.bearer_tokens import AUDIENCE, ISSUER, claims, signed, write_jwks
from tests.harness.java_tools import PRODUCER_SPEED
from tests.harness.kafka_tools import Tool
from tests.harness.running_nodes import running

pytestmark = [pytest.mark.kafka, pytest.mark.nightly]

BEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FROM_FILE: Final = (
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
)
TOPIC: Final = "repeated"
PASSWORD: Final = "Canary.Password"
SESSION_MS: Final = 2000
RECORDS: Final = 200
"""Written in ten seconds."""


@dataclass
class Node:
    ending: str
    metrics: int
    log: Path

    def logins(self, mechanism: str) -> int:
        url = f"http://{LOOPBACK}:{self.metrics}/metrics"
        text = urllib.request.urlopen(url, timeout=120).read().decode()
        wanted = rf'authentications_total{{listener="ENDING",mechanism="{mechanism}",'
        return sum(int(count) for count in re.findall(wanted + r'result="success"} (\d+)', text))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("repeated")
    port, ending, metrics = free_ports(3)
    settings = {
        "port": str(port),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{port},ENDING://{LOOPBACK}:{ending}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ENDING:SASL_PLAINTEXT,"
        "INTERNAL:PLAINTEXT",
        "listener.name.ending.sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "listener.name.ending.connections.max.reauth.ms": str(SESSION_MS),
        "sasl.oauthbearer.jwks.endpoint.url": write_jwks(directory / "keys.json"),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "delegation.token.secret.key": "key",
        "metrics.listener": f"{LOOPBACK}:{metrics}",
    }
    with EmbeddedZooKeeper() as zookeeper:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
            assert main(["users", "set", "alice", "--zookeeper", zookeeper.hosts]) == 0
        started = barnabas_node(directory, zookeeper.hosts, settings=settings)
        with running(started):
            asyncio.run(_create(started.bootstrap))
            yield Node(f"{LOOPBACK}:{ending}", metrics, directory / "node.log")


async def _create(bootstrap: str) -> None:
    async with Admin.of(bootstrap) as admin:
        await admin.create_topics([NewTopic(name=TOPIC, partitions=1, replication_factor=1)])


async def _delegated(bootstrap: str) -> str:
    config = ClientConfig(
        sasl_mechanism="SCRAM-SHA-256", sasl_username="alice", sasl_password=PASSWORD
    )
    async with Admin.of(bootstrap, config) as admin:
        return (await admin.create_delegation_token()).jaas_config


def writes(node: Node, tool: Tool, login: Path, mechanism: str) -> None:
    before = node.logins(mechanism)
    told = tool(
        PRODUCER_SPEED, "--topic", TOPIC, "--num-records", str(RECORDS), "--throughput", "20",
        "--record-size", "10", "--producer.config", str(login),
        "--producer-props", f"bootstrap.servers={node.ending}", "acks=all",
    )  # fmt: skip
    assert f"{RECORDS} records sent" in told
    assert "xception" not in told
    assert node.logins(mechanism) >= before + 4
    assert "session has ended" not in node.log.read_text()


def test_java_repeats_its_login_by_a_delegation_token(
    node: Node, tool: Tool, tmp_path: Path
) -> None:
    login = tmp_path / "login.properties"
    jaas = asyncio.run(_delegated(node.ending))
    login.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={jaas}\n"
    )
    writes(node, tool, login, "SCRAM-SHA-256")


def test_java_repeats_its_login_by_a_bearer_token(
    node: Node, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, login = tmp_path / "token", tmp_path / "login.properties"
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"{allowed}={token.as_uri()}")
    token.write_text(signed(claims(scope="any")))
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.login.callback.handler.class={FROM_FILE}\n"
        f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
        f"sasl.jaas.config={BEARER_MODULE} required;\n"
    )
    writes(node, tool, login, "OAUTHBEARER")
