"""Logins on real sockets: order, limits, delays, repetition. Source: docs/spec/security.md §2."""

from __future__ import annotations

import asyncio
import secrets
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from barnabas.broker.handlers import sasl as sasl_handlers
from barnabas.broker.handlers.api_versions import ApiVersionsHandler
from barnabas.broker.handlers.call import Call, PendingResponse
from barnabas.broker.net import connection_timeouts
from barnabas.broker.net.dispatch import Dispatcher
from barnabas.broker.net.limits import Limits
from barnabas.broker.net.listener import Listener
from barnabas.broker.security.sasl import SaslServer, SaslTerms
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.broker.settings.password_hash import PasswordHash
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import (
    api_versions,
    heartbeat,
    list_groups,
    metadata,
    sasl_authenticate,
    sasl_handshake,
)
from barnabas.protocol.scram import MECHANISMS, NONCE_BYTES, ClientExchange, salted_password
from tests.harness.sasl_terms import terms
from tests.net.client import RawClient, until
from tests.net.held_timers import HeldTimers

USERS = {"alice": "secret"}
ALICE = b"\0alice\0secret"
GUESS = b"\0alice\0guess"


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


@dataclass
class Guarded:
    """A listener that asks for a login, and what was served behind it."""

    listener: Listener
    parked: list[PendingResponse] = field(default_factory=list)
    served: list[str] = field(default_factory=list)
    clients: list[RawClient] = field(default_factory=list)

    async def connect(self) -> RawClient:
        client = await RawClient.open(self.listener.port)
        self.clients.append(client)
        return client


Start = Callable[[SaslTerms], Awaitable[Guarded]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    begun: list[Guarded] = []
    async with asyncio.TaskGroup() as tasks:

        async def begin(asked: SaslTerms) -> Guarded:
            dispatcher = Dispatcher(tasks)
            listener = Listener("TEST", dispatcher, Limits(NetworkSettings()), sasl=asked)
            guarded = Guarded(listener)

            def list_them(call: Call) -> list_groups.ListGroupsResponse:
                guarded.served.append(call.peer.principal)
                return list_groups.ListGroupsResponse()

            def park(call: Call) -> PendingResponse:
                guarded.parked.append(PendingResponse())
                return guarded.parked[-1]

            dispatcher.register(ApiVersionsHandler(dispatcher.supported_versions).handlers())
            dispatcher.register(sasl_handlers.handlers())
            dispatcher.register({ApiKey.LIST_GROUPS: list_them, ApiKey.HEARTBEAT: park})
            dispatcher.register({ApiKey.METADATA: lambda call: metadata.MetadataResponse()})
            await listener.bind("127.0.0.1", 0)
            listener.serve()
            begun.append(guarded)
            return guarded

        yield begin
        for guarded in begun:
            for client in guarded.clients:
                await client.close()
            await guarded.listener.close()


def handshake(mechanism: str = "PLAIN", version: int = 1) -> tuple[Any, int]:
    return sasl_handshake.SaslHandshakeRequest(mechanism=mechanism), version


def token(data: bytes, version: int = 2) -> tuple[Any, int]:
    return sasl_authenticate.SaslAuthenticateRequest(auth_bytes=data), version


LIST = (list_groups.ListGroupsRequest(), 0)
VERSIONS = (
    api_versions.ApiVersionsRequest(client_software_name="test", client_software_version="1"),
    3,
)


async def log_in(client: RawClient, data: bytes = ALICE) -> Any:
    """The answer to the token."""
    assert (await client.ask(*handshake())).error_code == 0
    return await client.ask(*token(data))


async def scram(client: RawClient, mechanism: str, password: str = "secret") -> Any:
    """The answer to the last token."""
    made = MECHANISMS[mechanism]
    exchange = ClientExchange(made, "alice", secrets.token_bytes(NONCE_BYTES))
    assert (await client.ask(*handshake(mechanism))).error_code == 0
    first = await client.ask(*token(exchange.first()))
    salting = exchange.salting(bytes(first.auth_bytes))
    last = await client.ask(*token(exchange.final(salted_password(made, password, *salting))))
    if not last.error_code:
        exchange.verify(bytes(last.auth_bytes))
    return last


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_login_by_plain_opens_the_connection(start: Start, version: int) -> None:
    """S20, S21: ApiVersions, handshake, token, done."""
    guarded = await start(terms(USERS))
    client = await guarded.connect()
    told = {one.api_key for one in (await client.ask(*VERSIONS)).api_keys}
    assert told == {3, 12, 16, 17, 18, 36}
    await client.ask(*handshake())
    answer = await client.ask(*token(ALICE, version))
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    await client.ask(*LIST)
    assert guarded.served == ["User:alice"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_login_by_scram_does_too_and_proves_the_server(
    start: Start, mechanism: str
) -> None:
    guarded = await start(terms(USERS, *MECHANISMS))
    client = await guarded.connect()
    assert (await scram(client, mechanism)).error_code == 0
    await client.ask(*LIST)
    assert guarded.served == ["User:alice"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_bare_tokens_follow_an_old_handshake(start: Start, mechanism: str) -> None:
    """S21: the server's challenge and proof come as bare as the client's tokens."""
    guarded = await start(terms(USERS, *MECHANISMS))
    client = await guarded.connect()
    await client.ask(*handshake(mechanism, 0))
    exchange = ClientExchange(MECHANISMS[mechanism], "alice", bytes(NONCE_BYTES))
    first = exchange.first()
    client.writer.write(struct.pack(">i", len(first)) + first)
    salting = exchange.salting(await client.frame_in())
    final = exchange.final(salted_password(MECHANISMS[mechanism], "secret", *salting))
    client.writer.write(struct.pack(">i", len(final)) + final)
    exchange.verify(await client.frame_in())
    await client.ask(*LIST)
    assert guarded.served == ["User:alice"]


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("sent", [ALICE, GUESS, b""])
async def test_a_bare_plain_token_is_answered_by_an_empty_frame_or_the_end(
    start: Start, sent: bytes, *, hashed: bool
) -> None:
    """S21, S28: also where the password takes a thread to check."""
    password = str(PasswordHash.of("secret", b"salt")) if hashed else "secret"
    guarded = await start(terms({"alice": password}))
    client = await guarded.connect()
    await client.ask(*handshake(version=0))
    client.writer.write(struct.pack(">i", len(sent)) + sent)
    if sent == ALICE:
        assert await client.frame_in() == b""
        await client.ask(*LIST)
        assert guarded.served == ["User:alice"]
    else:
        assert await client.is_closed()


async def test_a_hashed_password_is_checked_beside_the_loop(start: Start) -> None:
    """S28."""
    guarded = await start(terms({"alice": str(PasswordHash.of("secret", b"salt"))}))
    client, guesser = await guarded.connect(), await guarded.connect()
    assert (await log_in(client)).error_code == 0
    await client.ask(*LIST)
    assert (await log_in(guesser, GUESS)).error_code == 58
    assert await guesser.is_closed()
    assert guarded.served == ["User:alice"]


@pytest.mark.parametrize("key", [key for key in ApiKey if key not in (17, 18)])
async def test_no_decoder_runs_before_the_handshake(start: Start, key: ApiKey) -> None:
    """S20: the bytes behind the header would break every decoder."""
    guarded = await start(terms(USERS))
    client = await guarded.connect()
    body = struct.pack(">hhih", key, 0, 1, -1) + b"\xff" * 40
    client.writer.write(struct.pack(">i", len(body)) + body)
    assert await client.is_closed()
    assert guarded.served == []


@pytest.mark.parametrize("key", [ApiKey.LIST_GROUPS, ApiKey.API_VERSIONS, ApiKey.HEARTBEAT])
async def test_anything_but_a_token_in_its_place_is_34_in_its_own_shape(
    start: Start, key: ApiKey
) -> None:
    """S20: and is not read."""
    guarded = await start(terms(USERS))
    client = await guarded.connect()
    await client.ask(*handshake())
    body = struct.pack(">hhih", key, 0, 7, -1) + b"\xff" * 40
    client.writer.write(struct.pack(">i", len(body)) + body)
    answer = await client.frame_in()
    assert struct.unpack_from(">i", answer) == (7,)
    assert struct.unpack_from(">h", answer, 4) == (34,)
    assert await client.is_closed()
    assert (guarded.served, guarded.parked) == ([], [])


async def test_what_has_no_code_of_its_own_only_closes_in_the_place_of_a_token(
    start: Start,
) -> None:
    """S20."""
    guarded = await start(terms(USERS))
    client = await guarded.connect()
    await client.ask(*handshake())
    client.send((metadata.MetadataRequest(topics=[]), 1))
    assert await client.is_closed()


async def test_gssapi_tokens_of_old_clients_close_the_connection(start: Start) -> None:
    """S21: they begin with 0x60, without any handshake."""
    guarded = await start(terms(USERS))
    client = await guarded.connect()
    client.writer.write(struct.pack(">i", 40) + b"\x60" + bytes(39))
    assert await client.is_closed()


async def test_a_stranger_may_ask_for_versions_eight_times(start: Start) -> None:
    """S20."""
    guarded = await start(terms(USERS))
    client = await guarded.connect()
    for _ in range(8):
        assert (await client.ask(*VERSIONS)).error_code == 0
    client.send(VERSIONS)
    assert await client.is_closed()


async def test_sasl_requests_after_the_login_are_34_and_the_connection_stays(start: Start) -> None:
    """S22."""
    guarded = await start(terms(USERS))
    client = await guarded.connect()
    await log_in(client)
    again = await client.ask(*token(ALICE))
    assert again.error_code == 34
    assert (
        again.error_message == "SaslAuthenticate request received after successful authentication"
    )
    assert (await client.ask(*handshake())).error_code == 34
    await client.ask(*LIST)
    assert guarded.served == ["User:alice"]


@pytest.mark.parametrize("size", [2001, 600 << 10, 2**31 - 1, -1])
async def test_a_strangers_frame_has_the_length_of_its_setting_at_most(
    start: Start, size: int
) -> None:
    """S23: sasl.server.max.receive.size; a claimed length costs nothing."""
    guarded = await start(terms(USERS, receive_bytes_max=2000))
    client = await guarded.connect()
    client.writer.write(struct.pack(">ihhih", size, 18, 0, 0, -1))
    client.writer.write(bytes(max(0, min(size, 4000) - 10)))
    assert await client.is_closed()


async def test_longer_frames_are_served_after_the_login(start: Start) -> None:
    guarded = await start(terms(USERS, receive_bytes_max=2000))
    client = await guarded.connect()
    await log_in(client)
    await client.ask(list_groups.ListGroupsRequest(states_filter=["Stable" * 1000]), 4)
    assert guarded.served == ["User:alice"]


@pytest.mark.parametrize("steps", [0, 1, 2])
async def test_a_login_has_to_be_over_in_time_however_far_it_is(
    start: Start, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """S23: absolute, so that a byte or a handshake now and then wins nothing."""
    monkeypatch.setattr(connection_timeouts, "AUTHENTICATION_S", 0.1)
    guarded = await start(terms(USERS, *MECHANISMS))
    timers = HeldTimers(guarded.listener.loop)
    guarded.listener.loop = timers  # type: ignore[assignment]
    client = await guarded.connect()
    if steps:
        await client.ask(*handshake("SCRAM-SHA-256"))
    if steps > 1:
        assert (await client.ask(*token(b"n,,n=alice,r=abc"))).error_code == 0
    await until(lambda: bool(timers.delays))
    assert timers.delays == [0.1]
    timers.end()
    assert await client.is_closed()


async def test_a_login_has_its_time_behind_the_hold_of_the_connection_rate(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S23: nothing is read in the hold, which may be longer."""
    guarded = await start(terms(USERS))
    quotas = guarded.listener.limits.connection_quotas
    monkeypatch.setattr(quotas, "throttle_s", lambda *_, **__: 25.0)
    timers = HeldTimers(guarded.listener.loop)
    guarded.listener.loop = timers  # type: ignore[assignment]
    await guarded.connect()
    await until(lambda: len(timers.delays) == 2)
    assert sorted(timers.delays) == [25.0, 35.0]


@pytest.mark.parametrize(
    ("sent", "answer"), [(handshake("GUESS"), (33, None)), (token(GUESS), (58, None))]
)
async def test_a_failure_is_answered_late_and_nothing_else_is_read_meanwhile(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    sent: tuple[Any, int],
    answer: tuple[int, None],
) -> None:
    """S24: the answer waits as long as the setting says, and the end comes right behind it."""
    waits: list[float] = []
    go_on = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await go_on.wait()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    guarded = await start(terms(USERS, delay_ms=250))
    client = await guarded.connect()
    if answer[0] == 58:
        await client.ask(*handshake())
    client.send(sent, token(ALICE), LIST)
    while not waits:
        await client_turn()
    go_on.set()
    assert (await client.receive())[1].error_code == answer[0]
    assert await client.is_closed()
    assert (waits, guarded.served) == ([0.25], [])


async def client_turn() -> None:
    """One turn of the loop; not by sleep, which the test holds up."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


async def test_a_peer_that_leaves_while_its_failure_waits_harms_nobody(start: Start) -> None:
    guarded = await start(terms(USERS, delay_ms=50))
    leaver, other = await guarded.connect(), await guarded.connect()
    await leaver.ask(*handshake())
    leaver.send(token(GUESS))
    await leaver.close()
    assert (await log_in(other)).error_code == 0
    assert (await scram_refused(guarded)) == 33


async def scram_refused(guarded: Guarded) -> int:
    client = await guarded.connect()
    return int((await client.ask(*handshake("SCRAM-SHA-256"))).error_code)


# -- logins that end (S38) ---------------------------------------------------------------------


@dataclass
class Time:
    """The clock by which sessions end: it stands, or a slow machine would see them end."""

    now_s: float = 1000.0


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()

    def exchange(self: Listener) -> Any:
        assert self._sasl is not None
        return SaslServer(self._sasl, lambda: clock.now_s)

    monkeypatch.setattr(Listener, "exchange", exchange)
    return clock


async def test_the_end_of_a_session_is_told_and_the_next_request_closes(
    start: Start, time: Time
) -> None:
    guarded = await start(terms(USERS, session_ms=5000))
    client = await guarded.connect()
    answer = await log_in(client)
    assert answer.session_lifetime_ms == 5000
    await client.ask(*LIST)
    time.now_s += 5.1
    client.send(LIST)
    assert await client.is_closed()
    assert guarded.served == ["User:alice"]


async def test_a_repeated_login_prolongs_the_session_even_after_its_end(
    start: Start, time: Time
) -> None:
    guarded = await start(terms(USERS, *MECHANISMS, session_ms=5000))
    client = await guarded.connect()
    for _ in range(3):
        answer = await scram(client, "SCRAM-SHA-256")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 5000)
        await client.ask(*LIST)
        time.now_s += 5.1
    assert guarded.served == ["User:alice"] * 3


async def test_a_login_repeated_too_soon_is_34_and_the_session_goes_on(
    start: Start, time: Time
) -> None:
    guarded = await start(terms(USERS, session_ms=5000))
    client = await guarded.connect()
    await log_in(client)
    assert (await client.ask(*handshake())).error_code == 34
    await client.ask(*LIST)
    assert guarded.served == ["User:alice"]


async def test_another_user_cannot_repeat_a_login(start: Start, time: Time) -> None:
    guarded = await start(terms({**USERS, "bob": "b"}, session_ms=5000))
    client = await guarded.connect()
    await log_in(client)
    time.now_s += 2
    assert (await log_in(client, b"\0bob\0b")).error_code == 58
    assert await client.is_closed()


async def test_another_mechanism_cannot_repeat_a_login(start: Start, time: Time) -> None:
    guarded = await start(terms(USERS, "PLAIN", "SCRAM-SHA-256", session_ms=5000))
    client = await guarded.connect()
    await log_in(client)
    time.now_s += 2
    await client.ask(*handshake("SCRAM-SHA-256"))
    answer = await client.ask(*token(b"n,,n=alice,r=abc"))
    assert answer.error_code == 58
    assert await client.is_closed()


async def test_answers_under_way_leave_before_the_login_is_repeated(
    start: Start, time: Time
) -> None:
    """S38: with pipelined requests before it, and what is behind it waits for its end."""
    guarded = await start(terms(USERS, session_ms=5000))
    client = await guarded.connect()
    await log_in(client)
    time.now_s += 2
    beat = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    client.send((beat, 4), handshake(), token(ALICE), LIST)
    await until(lambda: bool(guarded.parked))
    guarded.parked[0].respond(heartbeat.HeartbeatResponse())
    answers = [(await client.receive())[1] for _ in range(4)]
    assert [getattr(answer, "error_code", None) for answer in answers] == [0, 0, 0, 0]
    assert answers[2].session_lifetime_ms == 5000
    assert guarded.served == ["User:alice"]


async def test_a_request_between_the_steps_of_a_repeated_login_closes(
    start: Start, time: Time
) -> None:
    guarded = await start(terms(USERS, session_ms=5000))
    client = await guarded.connect()
    await log_in(client)
    time.now_s += 2
    client.send(handshake(), LIST)
    assert (await client.receive())[1].error_code == 0
    assert (await client.receive())[1].error_code == 34
    assert await client.is_closed()
    assert guarded.served == []


async def test_an_old_client_is_closed_at_the_end_of_its_session(start: Start, time: Time) -> None:
    """KIP-368: it cannot repeat its login."""
    guarded = await start(terms(USERS, session_ms=5000))
    client = await guarded.connect()
    await client.ask(*handshake(version=0))
    client.writer.write(struct.pack(">i", len(ALICE)) + ALICE)
    assert await client.frame_in() == b""
    await client.ask(*LIST)
    time.now_s += 5.1
    client.send(LIST)
    assert await client.is_closed()
