"""Whom kazoo asks for a session, and how long it waits for an answer.

Source: docs/beacons.md, "How long ZooKeeper may be away".
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.protocol.serialization import Connect, GetData

from barnabas.client.zookeeper import kazoo_servers
from barnabas.client.zookeeper.kazoo_servers import PATIENCE_S, KazooServers
from barnabas.client.zookeeper.kazoo_session import connect
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper

SHARE_S = 6.0
"""A third of a session, which is what kazoo waits for one of three servers."""
ASK = Connect(0, 0, 18_000, 0, b"", False)


class SilentError(Exception):
    """kazoo's handler has a class of its own for this."""


class Connection:
    """What of a kazoo connection matters here; ``answers`` by host say who gives a session."""

    def __init__(self, answers: dict[str, Callable[[], Any]]) -> None:
        self.answers = answers
        self.waited: list[tuple[str, float]] = []
        self._host = ""

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        return [(host, host, 2181) for host in self.answers]

    def _connect(self, host: str, address: str, port: int) -> Any:
        self._host = host
        return self._invoke(SHARE_S, ASK)

    def _invoke(self, timeout_s: float, request: Any, xid: int | None = None) -> Any:
        self.waited.append((self._host, timeout_s))
        return self.answers[self._host]()


def silent() -> Any:
    raise SilentError


def closes() -> Any:
    raise ConnectionError("not serving")


def one_round(connection: Connection) -> str | None:
    """As kazoo's loop does it: the host that gave a session, or None."""
    for host, address, port in connection._expand_client_hosts():
        try:
            return str(connection._connect(host, address, port))
        except (SilentError, ConnectionError):
            continue
    return None


def test_a_server_that_stands_still_costs_little_while_others_elect_a_leader() -> None:
    """It was the leader: with the share of a session for it the lease was over."""
    connection = Connection({"still": silent, "one": closes, "two": closes})
    KazooServers(connection, SilentError)
    assert one_round(connection) is None
    connection.answers["one"] = lambda: "one"
    assert one_round(connection) == "one"
    assert sum(s for host, s in connection.waited if host == "still") == PATIENCE_S


def test_servers_that_are_slow_are_waited_for_longer_each_time() -> None:
    connection = Connection({"one": silent, "two": silent})
    KazooServers(connection, SilentError)
    for _ in range(4):
        assert one_round(connection) is None
    for host in connection.answers:
        assert [s for name, s in connection.waited if name == host] == [2.0, 4.0, 6.0, 6.0]


def test_one_that_answered_in_time_has_the_least_patience_again() -> None:
    connection = Connection({"one": silent})
    KazooServers(connection, SilentError)
    one_round(connection)
    connection.answers["one"] = lambda: "one"
    assert one_round(connection) == "one"
    connection.answers["one"] = silent
    one_round(connection)
    assert [s for _, s in connection.waited] == [2.0, 4.0, 2.0]


def test_only_the_question_for_a_session_is_hurried() -> None:
    connection = Connection({"one": lambda: "one"})
    servers = KazooServers(connection, SilentError)
    one_round(connection)
    servers.invoke(SHARE_S, GetData("/", None))
    assert [s for _, s in connection.waited] == [PATIENCE_S, SHARE_S]


def test_the_last_one_asked_comes_last_and_slow_ones_behind_the_others() -> None:
    connection = Connection({"slow": silent, "one": closes, "two": closes})
    KazooServers(connection, SilentError)
    one_round(connection)
    assert [host for host, *_ in connection._expand_client_hosts()] == ["one", "slow", "two"]


@pytest.mark.parametrize(
    "problem", [OSError(24, "Too many open files"), UnicodeError("label empty or too long")]
)
async def test_a_session_goes_on_after_a_look_up_that_failed(
    server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    """kazoo takes a name that is not known, and nothing else: its thread ended for good."""
    look_up, failures = socket.getaddrinfo, [problem]

    def fails_once(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return look_up(*arguments, **named)

    monkeypatch.setattr("kazoo.protocol.connection.socket.getaddrinfo", fails_once)
    session = await connect(server.hosts, connection_timeout_ms=60_000)
    await session.close()
    assert not failures


async def test_a_real_session_passes_by_a_server_that_accepts_and_says_nothing(
    server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kazoo_servers, "PATIENCE_S", 0.2)
    monkeypatch.setattr("kazoo.protocol.connection.random.shuffle", lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        hosts = f"127.0.0.1:{deaf.getsockname()[1]},{server.hosts}"
        session = await connect(hosts, session_timeout_ms=240_000, connection_timeout_ms=60_000)
        await session.close()
