"""Who may ask what on which listener: control APIs, ApiVersions, SASL/PLAIN."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.broker.handlers.api_versions import ApiVersionsHandler
from barnabas.broker.handlers.call import Call
from barnabas.broker.net import connection_timeouts
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import LIST_BYTES_MAX, Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.compiler import encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    api_versions,
    list_groups,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
)
from tests.harness.sasl_terms import terms
from tests.net.client import RawClient

SECRET = {"barnabas": "s3cret"}
STOP = (stop_replica.StopReplicaRequest(), 3)


def plain_token(name: str, password: str) -> bytes:
    return b"\0" + name.encode() + b"\0" + password.encode()


@dataclass
class StartedListeners:
    """The listeners of one node: for clients, for nodes, and for nodes with a secret."""

    client: Listener
    internal: Listener
    secret: Listener
    principals: list[str]


@pytest.fixture
async def listeners() -> AsyncIterator[StartedListeners]:
    async with asyncio.TaskGroup() as tasks:
        dispatcher, limits = Dispatcher(tasks), Limits(NetworkSettings())
        principals: list[str] = []

        def list_them(call: Call) -> list_groups.ListGroupsResponse:
            principals.append(call.peer.principal)
            return list_groups.ListGroupsResponse()

        dispatcher.register(ApiVersionsHandler(dispatcher.supported_versions).handlers())
        dispatcher.register(sasl_handlers.handlers())
        dispatcher.register(
            {
                ApiKey.LIST_GROUPS: list_them,
                ApiKey.STOP_REPLICA: lambda call: stop_replica.StopReplicaResponse(error_code=11),
            }
        )
        opened = StartedListeners(
            Listener("CLIENT", dispatcher, limits),
            Listener("INTERNAL", dispatcher, limits, is_internal=True),
            Listener("INTERNAL", dispatcher, limits, is_internal=True, sasl=terms(SECRET)),
            principals,
        )
        for listener in (opened.client, opened.internal, opened.secret):
            await listener.bind("127.0.0.1", 0)
            listener.serve()
        yield opened
        for listener in (opened.client, opened.internal, opened.secret):
            await listener.close()


async def supported_versions(client: RawClient) -> dict[int, tuple[int, int]]:
    request = api_versions.ApiVersionsRequest(
        client_software_name="test", client_software_version="1"
    )
    answer = await client.ask(request, 3)
    return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}


async def authenticated(client: RawClient, name: str, password: str) -> int:
    await client.ask(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    request = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=plain_token(name, password))
    return int((await client.ask(request, 2)).error_code)


async def test_control_requests_are_served_on_the_inter_broker_listener_only(
    listeners: StartedListeners,
) -> None:
    inside, outside = await RawClient.open(listeners.internal.port), None
    assert (await inside.ask(*STOP)).error_code == 11
    outside = await RawClient.open(listeners.client.port)
    outside.send(STOP)
    assert await outside.is_closed()
    await inside.close()
    await outside.close()


async def test_lists_of_megabytes_are_served_to_nodes_only(listeners: StartedListeners) -> None:
    long_list = list_groups.ListGroupsRequest(states_filter=["Stable" * 1000] * 700)
    assert len(encode(long_list, 4)) > LIST_BYTES_MAX
    inside = await RawClient.open(listeners.internal.port)
    assert (await inside.ask(long_list, 4)).error_code == 0
    outside = await RawClient.open(listeners.client.port)
    outside.send((long_list, 4))
    assert await outside.is_closed()
    await inside.close()
    await outside.close()


async def test_each_listener_tells_what_it_serves_and_nothing_else(
    listeners: StartedListeners,
) -> None:
    plain = {16: (0, 5), 17: (0, 1), 18: (0, 4), 36: (0, 2)}
    expected = [
        (listeners.client, plain),
        (listeners.internal, {5: (0, 4), **plain}),
        (listeners.secret, {5: (0, 4), **plain}),
    ]
    for listener, apis in expected:
        client = await RawClient.open(listener.port)
        told = await supported_versions(client)
        assert {key: told[key][0] for key in told} == dict.fromkeys(apis, 0)
        assert set(told) == set(apis)
        await client.close()


async def test_nothing_is_served_to_a_peer_that_has_not_proved_who_it_is(
    listeners: StartedListeners,
) -> None:
    client = await RawClient.open(listeners.secret.port)
    client.send((list_groups.ListGroupsRequest(), 0))
    assert await client.is_closed()
    assert listeners.principals == []
    await client.close()


async def test_the_cluster_secret_opens_the_inter_broker_listener(
    listeners: StartedListeners,
) -> None:
    client = await RawClient.open(listeners.secret.port)
    assert 17 in await supported_versions(client)
    assert await authenticated(client, "barnabas", "s3cret") == 0
    await client.ask(list_groups.ListGroupsRequest(), 0)
    assert listeners.principals == ["User:barnabas"]
    assert (await client.ask(*STOP)).error_code == 11
    await client.close()


async def test_a_bare_token_after_the_old_handshake_does_too(listeners: StartedListeners) -> None:
    client = await RawClient.open(listeners.secret.port)
    await client.ask(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), 0)
    token = plain_token("barnabas", "s3cret")
    client.writer.write(struct.pack(">i", len(token)) + token)
    assert await client.frame_in() == b""
    assert (await client.ask(*STOP)).error_code == 11
    await client.close()


@pytest.mark.parametrize("token", [b"\0barnabas\0wrong", b"", b"\0" * 2])
async def test_a_wrong_bare_token_closes_the_connection(
    listeners: StartedListeners, token: bytes
) -> None:
    client = await RawClient.open(listeners.secret.port)
    await client.ask(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), 0)
    client.writer.write(struct.pack(">i", len(token)) + token)
    assert await client.is_closed()
    await client.close()


async def test_a_wrong_password_is_answered_58_and_the_connection_closed(
    listeners: StartedListeners,
) -> None:
    client = await RawClient.open(listeners.secret.port)
    assert await authenticated(client, "barnabas", "guess") == 58
    assert await client.is_closed()
    await client.close()


async def test_an_unknown_mechanism_is_answered_33_with_those_there_are(
    listeners: StartedListeners,
) -> None:
    client = await RawClient.open(listeners.secret.port)
    answer = await client.ask(sasl_handshake.SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert (answer.error_code, list(answer.mechanisms)) == (33, ["PLAIN"])
    assert await client.is_closed()
    await client.close()


async def test_a_listener_that_asks_for_no_proof_takes_none(listeners: StartedListeners) -> None:
    client = await RawClient.open(listeners.client.port)
    answer = await client.ask(sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    await client.close()


async def test_a_stranger_may_not_send_large_frames(listeners: StartedListeners) -> None:
    client = await RawClient.open(listeners.secret.port)
    client.writer.write(struct.pack(">ihhih", 600 << 10, 36, 0, 0, -1))
    assert await client.is_closed()
    await client.close()


async def test_a_stranger_has_to_authenticate_in_time(
    listeners: StartedListeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_timeouts, "AUTHENTICATION_S", 0.01)
    client = await RawClient.open(listeners.secret.port)
    assert await client.is_closed()
    await client.close()
