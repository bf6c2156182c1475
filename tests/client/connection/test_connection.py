"""One client connection: versions are agreed, answers matched, failures told to all who wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.client.connection.connection import Connection
from barnabas.client.connection.sasl_login import SaslLogin
from barnabas.client.errors import (
    AuthenticationFailed,
    Disconnected,
    KafkaError,
    RequestTimedOut,
    UnsupportedVersion,
)
from barnabas.console.development.ports import free_ports
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    heartbeat,
    metadata,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from tests.client.scripted_broker import ScriptedBroker, scripted_broker, speaking


def _metadata(request: Any, version: int) -> metadata.MetadataResponse:
    return metadata.MetadataResponse(
        controller_id=version, brokers=[metadata.Broker(node_id=1, host="h", port=1)]
    )


def _heartbeat(request: heartbeat.HeartbeatRequest, version: int) -> heartbeat.HeartbeatResponse:
    return heartbeat.HeartbeatResponse(error_code=int(request.generation_id))


def _never(request: Any, version: int) -> None:
    return None


async def _open(broker: ScriptedBroker, **how: Any) -> Connection:
    return await Connection.open("127.0.0.1", broker.port, **how)


async def test_the_highest_common_version_is_spoken_when_none_is_named() -> None:
    answers = {ApiKey.METADATA: _metadata}
    async with (
        scripted_broker(answers, ranges={ApiKey.METADATA: (0, 5)}) as broker,
        await _open(broker) as connection,
    ):
        answer = await connection.request(metadata.MetadataRequest(topics=[]))
    assert answer.controller_id == 5


async def test_a_named_version_is_spoken() -> None:
    async with (
        scripted_broker({ApiKey.METADATA: _metadata}) as broker,
        await _open(broker) as connection,
    ):
        answer = await connection.request(metadata.MetadataRequest(topics=[]), version=9)
    assert answer.controller_id == 9


async def test_version_of_does_not_exceed_what_the_caller_can_read() -> None:
    async with (
        scripted_broker({ApiKey.METADATA: _metadata}) as broker,
        await _open(broker) as connection,
    ):
        assert connection.version_of(metadata.MetadataRequest, most=7) == 7


@pytest.mark.parametrize("newest", [0, 2, 3])
async def test_a_broker_that_knows_only_old_api_versions_is_understood(newest: int) -> None:
    async with (
        scripted_broker({ApiKey.METADATA: _metadata}, api_versions_max=newest) as broker,
        await _open(broker) as connection,
    ):
        assert connection.versions[ApiKey.API_VERSIONS] == (0, newest)


async def test_an_api_that_is_not_served_is_refused_before_anything_is_sent() -> None:
    async with scripted_broker() as broker, await _open(broker) as connection:
        with pytest.raises(UnsupportedVersion, match="does not serve Heartbeat"):
            await connection.request(heartbeat.HeartbeatRequest())
        assert not broker.seen


async def test_an_api_served_only_in_versions_unknown_to_us_is_refused() -> None:
    async with (
        scripted_broker(ranges={ApiKey.HEARTBEAT: (90, 91)}) as broker,
        await _open(broker) as connection,
    ):
        with pytest.raises(UnsupportedVersion, match="versions 90 to 91"):
            await connection.request(heartbeat.HeartbeatRequest())


async def test_many_requests_under_way_each_get_their_own_answer() -> None:
    async with (
        scripted_broker({ApiKey.HEARTBEAT: _heartbeat}) as broker,
        await _open(broker) as connection,
    ):
        asked = [
            connection.request(heartbeat.HeartbeatRequest(generation_id=n)) for n in range(500)
        ]
        answers = await asyncio.gather(*asked)
    assert [answer.error_code for answer in answers] == list(range(500))


async def test_the_client_id_reaches_the_broker() -> None:
    async with (
        scripted_broker({ApiKey.METADATA: _metadata}) as broker,
        await _open(broker, client_id="mine") as connection,
    ):
        await connection.request(metadata.MetadataRequest(topics=[]))
        assert broker.seen[0][0].client_id == "mine"


async def test_a_cancelled_request_leaves_the_connection_usable() -> None:
    async with (
        scripted_broker({ApiKey.HEARTBEAT: _heartbeat}) as broker,
        await _open(broker) as connection,
    ):
        given_up = asyncio.create_task(
            connection.request(heartbeat.HeartbeatRequest(generation_id=1))
        )
        await asyncio.sleep(0)
        given_up.cancel()
        answer = await connection.request(heartbeat.HeartbeatRequest(generation_id=2))
        assert answer.error_code == 2
        assert given_up.cancelled()


async def test_an_answer_that_is_late_ends_the_connection_and_all_that_wait_on_it() -> None:
    answers = {ApiKey.HEARTBEAT: _never, ApiKey.METADATA: _never}
    async with scripted_broker(answers) as broker, await _open(broker) as connection:
        slow = asyncio.create_task(connection.request(metadata.MetadataRequest(topics=[])))
        with pytest.raises(RequestTimedOut, match="did not answer"):
            await connection.request(heartbeat.HeartbeatRequest(), timeout_ms=1)
        with pytest.raises(RequestTimedOut):
            await slow
        assert connection.is_closed


async def test_a_request_in_flight_fails_when_the_broker_closes() -> None:
    async with (
        scripted_broker({ApiKey.HEARTBEAT: _never}) as broker,
        await _open(broker) as connection,
    ):
        waiting = asyncio.create_task(connection.request(heartbeat.HeartbeatRequest()))
        await broker.arrived.wait()
        broker.writers[0].close()
        with pytest.raises(Disconnected, match="closed the connection"):
            await waiting


async def test_closing_fails_what_is_under_way_and_whatever_comes_later() -> None:
    async with (
        scripted_broker({ApiKey.HEARTBEAT: _never}) as broker,
        await _open(broker) as connection,
    ):
        waiting = asyncio.create_task(connection.request(heartbeat.HeartbeatRequest()))
        await broker.arrived.wait()
        await connection.close()
        with pytest.raises(Disconnected, match="was closed"):
            await waiting
        with pytest.raises(Disconnected, match="was closed"):
            await connection.request(heartbeat.HeartbeatRequest())
        await connection.close()


async def test_a_produce_that_wants_no_answer_gets_none() -> None:
    answers = {ApiKey.PRODUCE: _never, ApiKey.HEARTBEAT: _heartbeat}
    async with scripted_broker(answers) as broker, await _open(broker) as connection:
        assert await connection.request(produce.ProduceRequest(acks=0)) is None
        answer = await connection.request(heartbeat.HeartbeatRequest(generation_id=7))
        assert answer.error_code == 7


async def test_nobody_listening_is_reported_with_the_address() -> None:
    (port,) = free_ports(1)
    with pytest.raises(Disconnected, match=f"127.0.0.1:{port}.*[Rr]efused") as failure:
        await Connection.open("127.0.0.1", port)
    assert failure.value.retriable
    assert failure.value.name == "NETWORK_EXCEPTION"


@pytest.mark.parametrize(
    ("host", "port"), [("no..host", 9092), ("x" * 64, 9092), ("127.0.0.1", 65536)]
)
async def test_what_can_be_no_address_is_reported_as_one_where_nobody_listens(
    host: str, port: int
) -> None:
    with pytest.raises(Disconnected, match="no connection to"):
        await Connection.open(host, port)


async def test_a_server_that_accepts_and_says_nothing_is_given_up() -> None:
    async with speaking(b"") as port:
        with pytest.raises(Disconnected, match="nothing within 500 ms"):
            await Connection.open("127.0.0.1", port, timeout_ms=500)


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "sent a frame of"),
        (b"\0\0\0\4\0\0\0\x63", "answered what nobody asked"),
        (b"\xff\xff\xff\xff\0\0\0\1", "sent a frame of -1 bytes"),
        (b"\0\0\0\6\0\0\0\1\0\0", "corrupt ApiVersions"),
    ],
)
async def test_bytes_that_are_no_answer_end_the_connection(sent: bytes, told: str) -> None:
    async with speaking(sent) as port:
        with pytest.raises(Disconnected, match=told):
            await Connection.open("127.0.0.1", port)


def _plain(user: str, password: str) -> dict[ApiKey, Any]:
    def handshake(request: Any, version: int) -> sasl_handshake.SaslHandshakeResponse:
        known = request.mechanism == "PLAIN"
        code = 0 if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return sasl_handshake.SaslHandshakeResponse(error_code=code, mechanisms=["PLAIN"])

    def authenticate(request: Any, version: int) -> sasl_authenticate.SaslAuthenticateResponse:
        is_right = bytes(request.auth_bytes) == f"\0{user}\0{password}".encode()
        code = 0 if is_right else ErrorCode.SASL_AUTHENTICATION_FAILED
        return sasl_authenticate.SaslAuthenticateResponse(error_code=code, error_message="no")

    return {ApiKey.SASL_HANDSHAKE: handshake, ApiKey.SASL_AUTHENTICATE: authenticate}


async def test_a_name_and_password_open_a_guarded_listener() -> None:
    async with (
        scripted_broker(_plain("ann", "secret")) as broker,
        await _open(broker, sasl=SaslLogin("ann", "secret")) as connection,
    ):
        assert not connection.is_closed
        assert len(broker.seen) == 2


async def test_a_wrong_password_is_an_error_of_its_own() -> None:
    async with scripted_broker(_plain("ann", "secret")) as broker:
        with pytest.raises(AuthenticationFailed) as failure:
            await _open(broker, sasl=SaslLogin("ann", "guess"))
    assert failure.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not failure.value.retriable


def test_a_code_from_a_newer_broker_counts_as_unknown() -> None:
    assert KafkaError(31_000).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_an_error_says_its_name_and_the_brokers_words() -> None:
    assert str(KafkaError(36, "t exists")) == "TOPIC_ALREADY_EXISTS: t exists"
