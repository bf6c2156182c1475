"""A connection that is over is freed at once: the collector looks at old objects seldom.

Source: docs/decisions/0013-pauses-of-the-collector.md.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.broker.net.connection import Connection
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.protocol.messages import heartbeat, list_groups, sasl_authenticate, sasl_handshake
from tests.harness.compiled_code import interpreted_only
from tests.harness.sasl_terms import terms
from tests.net.client import RawClient, until
from tests.net.conftest import ListeningNode, Start
from tests.net.test_tls_listener import World

pytestmark = interpreted_only
"""A weak reference to a compiled object dangles when that is freed: docs/decisions/0012."""


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


async def use(client: RawClient, *, login: bool = False) -> None:
    if login:
        await client.ask(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")
        assert (await client.ask(token, 2)).error_code == 0
    await client.ask(list_groups.ListGroupsRequest(), 2)


def watched(node: ListeningNode) -> weakref.ref[Connection]:
    (connection,) = node.listener.connections
    return weakref.ref(connection)


async def test_a_connection_that_its_client_closed_is_freed_at_once(start: Start) -> None:
    node = await start()
    client = await node.connect()
    await use(client)
    connection = watched(node)
    await client.close()
    await until(lambda: connection() is None)


async def test_so_is_one_whose_request_is_still_worked_on(start: Start) -> None:
    node = await start()
    client = await node.connect()
    client.send((heartbeat.HeartbeatRequest(group_id="g"), 3))
    await until(lambda: "g" in node.toys.pending)
    connection = watched(node)
    await client.close()
    await until(lambda: node.toys.dropped == ["g"])
    node.toys.resolve("g")
    node.toys.pending.clear()
    await until(lambda: connection() is None)


async def test_so_is_one_that_sent_a_large_request(start: Start) -> None:
    node = await start()
    client = await node.connect()
    large = heartbeat.HeartbeatRequest(group_id="g", member_id="m" * 32_000)
    client.send(*[(large, 3)] * 20)
    await until(lambda: "g" in node.toys.pending)
    connection = watched(node)
    await client.close()
    await until(lambda: not node.listener.connections)
    node.toys.pending.clear()
    await until(lambda: connection() is None)


async def test_so_is_one_that_logged_in(start: Start) -> None:
    node = await start(sasl=terms({"alice": "secret"}))
    node.dispatcher.register(sasl_handlers.handlers())
    client = await node.connect()
    await use(client, login=True)
    connection = watched(node)
    await client.close()
    await until(lambda: not node.listener.connections)
    await use(await node.connect(), login=True)  # the scheduler knows whom it served last
    assert connection() is None


async def test_so_is_one_over_tls(start: Start) -> None:
    world = World()
    node = await start(tls=world.tls())
    client = await node.connect(world.client())
    await use(client)
    connection = watched(node)
    await client.close()
    await until(lambda: connection() is None)


async def test_so_is_one_that_the_node_turned_away(start: Start) -> None:
    made: list[weakref.ref[Connection]] = []
    node = await start(settings=NetworkSettings(max_connections=1))
    first = await node.connect()
    await use(first)
    admit = Connection._admit

    def note(connection: Connection, now: float) -> bool:
        made.append(weakref.ref(connection))
        return admit(connection, now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "_admit", note)
        second = await node.connect()
        assert await second.is_closed()
    await until(lambda: bool(made) and made[0]() is None)
