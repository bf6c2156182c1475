"""What the audit log and metrics say of logins, certificates and handshakes: S76, S77."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import pytest

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.broker.metrics.security_families import authentication_families
from barnabas.broker.metrics.tls_families import tls_families
from barnabas.broker.security.audit_log import AuditLog
from barnabas.broker.security.sasl import EXPIRED, SaslTerms
from barnabas.protocol.messages import list_groups, sasl_authenticate, sasl_handshake
from tests.harness.sasl_terms import terms
from tests.net.client import RawClient, until
from tests.net.conftest import ListeningNode, Start
from tests.net.test_tls_listener import World, nobody_is_left, world

__all__ = ["world"]

LIST = (list_groups.ListGroupsRequest(), 0)
GUESS = "Canary.Guess"


async def asking(start: Start, asked: SaslTerms) -> tuple[ListeningNode, list[str]]:
    """A node that asks for a login, and the lines of its audit log."""
    node = await start(sasl=asked)
    node.dispatcher.register(sasl_handlers.handlers())
    return node, lines_of(node)


def lines_of(node: ListeningNode) -> list[str]:
    lines: list[str] = []
    node.limits.audit = AuditLog(lines.append)
    return lines


def events(lines: list[str]) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines]
    for one in found:
        assert one.pop("time")
    return found


async def log_in(client: RawClient, password: str, mechanism: str = "PLAIN") -> int:
    """The code of the handshake, or of the token."""
    chosen = await client.ask(sasl_handshake.SaslHandshakeRequest(mechanism=mechanism), 1)
    if chosen.error_code:
        return int(chosen.error_code)
    token = f"\0alice\0{password}".encode()
    answer = await client.ask(sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token), 2)
    return int(answer.error_code)


async def test_logins_leave_lines_and_those_that_fail_say_no_secret(start: Start) -> None:
    node, lines = await asking(start, terms({"alice": "secret"}))
    assert await log_in(await node.connect(), "secret") == 0
    assert await log_in(await node.connect(), GUESS) == 58
    assert await log_in(await node.connect(), GUESS) == 58
    assert await log_in(await node.connect(), "secret", "GSSAPI") == 33
    by = {"event": "login", "listener": "TEST", "host": "127.0.0.1"}
    success, failure, unknown = events(lines)
    assert success == {
        **by,
        "result": "success",
        "mechanism": "PLAIN",
        "principal": "User:alice",
    }
    assert failure | {"reason": ""} == {
        **by,
        "result": "failure",
        "mechanism": "PLAIN",
        "reason": "",
    }
    assert "name='alice'" in failure["reason"]
    assert unknown["reason"] == "unknown mechanism 'GSSAPI'"
    node.limits.audit.flush()
    assert events(lines)[3:] == [{**failure, "count": 1}]
    assert GUESS not in "".join(lines)


async def test_a_connection_whose_login_was_not_repeated_is_counted(start: Start) -> None:
    asked = terms({"alice": "secret"}, session_ms=1)
    node, _ = await asking(start, asked)
    client = await node.connect()
    assert await log_in(client, "secret") == 0
    loop = asyncio.get_running_loop()
    (connection,) = node.listener.connections
    assert connection.sasl is not None
    ends = connection.sasl.session_expires_ms
    assert ends is not None
    await until(lambda: loop.time() * 1000 >= ends)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await client.ask(*LIST)
    assert asked.counts["TEST", "PLAIN", EXPIRED] == 1
    told = "".join(authentication_families(asked.counts))
    assert 'barnabas_expired_connections_total{listener="TEST",mechanism="PLAIN"} 1\n' in told
    assert 'result="expired"' not in told


async def test_a_certificate_is_a_login(start: Start, world: World) -> None:
    node = await start(tls=world.tls("required"))
    lines = lines_of(node)
    await (await node.connect(world.client("right"))).ask(*LIST)
    assert events(lines) == [
        {
            "event": "login",
            "result": "success",
            "listener": "TEST",
            "mechanism": "SSL",
            "host": "127.0.0.1",
            "principal": "User:CN=alice,C=US",
        }
    ]
    told = "".join(tls_families({"TEST": node.listener}))
    assert 'barnabas_tls_handshake_seconds_count{listener="TEST"} 1\n' in told


async def test_who_shows_no_certificate_where_none_is_demanded_has_not_logged_in(
    start: Start, world: World
) -> None:
    node = await start(tls=world.tls("requested"))
    lines = lines_of(node)
    await (await node.connect(world.client("nothing"))).ask(*LIST)
    assert lines == []


async def turned_away(node: ListeningNode, tls: ssl.SSLContext) -> None:
    with pytest.raises((ConnectionError, ssl.SSLError, asyncio.IncompleteReadError)):
        await (await node.connect(tls)).ask(*LIST)
    await until(lambda: nobody_is_left(node))


async def test_certificates_that_let_nobody_in_leave_lines(start: Start, world: World) -> None:
    node = await start(tls=world.tls("required", principal_mapping_rules="RULE:^CN=bob.*$/bob/"))
    lines = lines_of(node)
    await turned_away(node, world.client("foreign"))
    await turned_away(node, world.client("right"))
    handshake, login = events(lines)
    assert handshake | {"reason": ""} == {
        "event": "handshake",
        "result": "failure",
        "listener": "TEST",
        "host": "127.0.0.1",
        "reason": "",
    }
    assert handshake["reason"].startswith("certificate refused: ")
    assert (login["result"], login["mechanism"]) == ("failure", "SSL")
    assert "CN=alice,C=US" in login["reason"]
