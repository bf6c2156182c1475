"""A login on a listener that speaks TLS. Source: docs/spec/security.md §1 (S7) and §2."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.broker.net import tls_acceptor
from barnabas.broker.net.connection_quotas import ConnectionQuotas
from barnabas.broker.net.limits import AUTHENTICATION_S
from barnabas.protocol.messages import list_groups, sasl_authenticate, sasl_handshake
from tests.harness.sasl_terms import terms
from tests.net.client import until
from tests.net.conftest import Start
from tests.net.test_tls_listener import World


async def test_a_login_over_tls_makes_the_principal_of_the_login(start: Start) -> None:
    """Not that of a certificate, if one was shown at all."""
    world = World()
    node = await start(tls=world.tls(), sasl=terms({"alice": "secret"}))
    node.dispatcher.register(sasl_handlers.handlers())
    client = await node.connect(world.client())
    await client.ask(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    (connection,) = node.listener.connections
    assert connection.principal == "User:ANONYMOUS"
    token = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
    assert (await client.ask(token, 2)).error_code == 0
    await client.ask(list_groups.ListGroupsRequest(), 2)
    assert connection.principal == "User:alice"


async def test_handshake_and_login_have_their_time_behind_the_hold_of_the_connection_rate(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepted, bounds = [], []

    def hold_s(*_: Any, now: float, **__: Any) -> float:
        accepted.append(now)
        return 25.0

    async def await_turn(_: Any, entrant: Any, ends: float, wait_s: float) -> str:
        bounds.append((entrant.admitted_at, ends, wait_s))
        return "it waits long enough"

    monkeypatch.setattr(ConnectionQuotas, "throttle_s", hold_s)
    monkeypatch.setattr(tls_acceptor.TlsAcceptor, "_await_turn", await_turn)
    node = await start(tls=World().tls(), sasl=terms({"alice": "secret"}))
    with socket.create_connection(("127.0.0.1", node.listener.port)):
        await until(lambda: bool(bounds))
    begins = accepted[0] + 25.0
    assert bounds == [(begins, begins + AUTHENTICATION_S, 25.0)]
