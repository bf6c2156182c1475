"""A login on a listener that speaks TLS. Source: docs/spec/security.md §1 (S7) and §2."""

from __future__ import annotations

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.protocol.messages import list_groups, sasl_authenticate, sasl_handshake
from tests.harness.sasl_terms import terms
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
