"""A session lives on when what answers is no ZooKeeper, or answers what nobody asked."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import AsyncIterator
from typing import Final

import pytest

from barnabas.client.zookeeper.interface import ConnectionLost, SessionState, ZooKeeper
from barnabas.client.zookeeper.kazoo_session import connect
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper

from .conftest import CONNECT_MS, told_within

TOO_SHORT: Final = struct.pack(">i", 3) + b"xyz"
"""A frame that has no room for the header of an answer."""
NEGATIVE: Final = struct.pack(">i", -5)
OTHER_QUESTION: Final = struct.pack(">iiqi", 16, 987_654, 0, 0)
"""An answer, complete and right, to a request with a number that nobody sent."""
WEB_SERVER: Final = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"


class Intruder:
    """Stands between a session and its server, and puts words in the server's mouth.

    ``instead`` is said once, in the place of the next answer. Each of ``greets`` is all that one
    connection hears.
    """

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        host, _, port = server.hosts.partition(":")
        self._server = host, int(port)
        self._relays: set[asyncio.Task[None]] = set()
        self.instead = b""
        self.greets: list[bytes] = []
        self.port = 0
        self.connections = itertools.count()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Intruder]:
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            for relay in list(self._relays):
                relay.cancel()
            await asyncio.gather(*self._relays, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        next(self.connections)
        if self.greets:
            writer.write(self.greets.pop(0))
            await reader.read(1)  # kazoo has asked, so that it reads
            await writer.drain()
            writer.close()
            return
        upstream_reader, upstream = await asyncio.open_connection(*self._server)
        for source, sink in ((reader, upstream), (upstream_reader, writer)):
            relay = asyncio.create_task(self._relay(source, sink, is_answer=sink is writer))
            self._relays.add(relay)
            relay.add_done_callback(self._relays.discard)

    async def _relay(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            while data := await source.read(65536):
                if is_answer and self.instead:
                    data, self.instead = self.instead, b""
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()


@pytest.fixture
async def intruder(server: EmbeddedZooKeeper) -> AsyncIterator[Intruder]:
    async with Intruder(server).listening() as listening:
        yield listening


async def connected_by_way_of(intruder: Intruder) -> ZooKeeper:
    return await connect(
        f"127.0.0.1:{intruder.port}", session_timeout_ms=60_000, connection_timeout_ms=CONNECT_MS
    )


@pytest.mark.parametrize(
    "nonsense",
    [TOO_SHORT, NEGATIVE, OTHER_QUESTION],
    ids=["too-short", "negative-length", "other-question"],
)
async def test_a_session_goes_on_after_an_answer_that_is_none(
    intruder: Intruder, nonsense: bytes
) -> None:
    """Its thread ended, and the session was lost for good."""
    session = await connected_by_way_of(intruder)
    try:
        states: list[SessionState] = []
        is_back = asyncio.get_running_loop().create_future()

        def told(state: SessionState) -> None:
            states.append(state)
            if state is not SessionState.SUSPENDED and not is_back.done():
                is_back.set_result(None)

        session.on_state.append(told)
        former = session.session_id
        intruder.instead = nonsense
        with contextlib.suppress(ConnectionLost):
            await session.set("/", b"not repeated")
        await told_within(is_back)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert session.session_id == former
        assert await session.exists("/") is not None
    finally:
        await session.close()


async def test_a_read_that_was_answered_nonsense_is_asked_again(intruder: Intruder) -> None:
    session = await connected_by_way_of(intruder)
    try:
        intruder.instead = OTHER_QUESTION
        assert "zookeeper" in await session.children("/")
    finally:
        await session.close()


async def test_a_session_begins_once_another_program_has_left_the_port(intruder: Intruder) -> None:
    intruder.greets = [WEB_SERVER, TOO_SHORT, NEGATIVE]
    session = await connected_by_way_of(intruder)
    try:
        assert await session.exists("/") is not None
        assert next(intruder.connections) >= 4
    finally:
        await session.close()
