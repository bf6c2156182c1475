"""Users of the cluster log in by name and password, and see what the cluster lets them see.

Source: docs/spec/console.md §3 (security).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from barnabas.console.development.ports import LOOPBACK, free_ports
from benchmarks.barnabas_node import barnabas_node
from tests.harness.steady_settings import STEADY
from tests.harness.web_console import FORM, reader_of

PASSWORD = "Canary.Password"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a node that asks who one is; bob may come in."""
    directory: Path = tmp_path_factory.mktemp("guarded")
    first, users = free_ports(2)
    settings = {
        **STEADY,
        "port": str(first),
        "listeners": f"PLAINTEXT://{LOOPBACK}:{first},USERS://{LOOPBACK}:{users}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
        "listener.name.users.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": f'{MODULE} required user_bob="{PASSWORD}";',
    }
    with EmbeddedZooKeeper() as zookeeper:
        node = barnabas_node(directory, zookeeper.hosts, settings=settings)
        try:
            node.launch()
            node.wait_until_listening()
            yield f"{LOOPBACK}:{users}"
        finally:
            node.stop()


async def test_name_and_password_are_proved_by_a_connection_and_kept_out_of_sight(
    guarded: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="barnabas")
    async with reader_of(guarded, auth="sasl", is_in=False) as reader:
        form = {"username": "bob", "password": "another"}
        refused = await reader.http.post("/login", data=form, headers=FORM)
        assert refused.status_code == 403
        assert "refuses this name and password" in refused.text
        form = {"username": "bob", "password": PASSWORD, "back": "/brokers"}
        answer = await reader.http.post("/login", data=form, headers=FORM)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/brokers"
        page = await reader.get("/brokers")
        assert "User:bob" in page.text
        (row,) = (await reader.json("/brokers.json"))["brokers"]
        assert guarded == f"{row['host']}:{row['port']}"
        assert PASSWORD not in page.text
        await reader.post("/logout")
        assert (await reader.get("/brokers")).status_code == 401
    assert PASSWORD not in caplog.text
