"""One real ZooKeeper for all tests of this folder; each test works below a path of its own."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import pytest
from kazoo.client import KazooClient

from barnabas.client.zookeeper import kazoo_handler, kazoo_session
from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.client.zookeeper.kazoo_session import KazooSession, connect
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper

Connect = Callable[[], Awaitable[ZooKeeper]]
CONNECT_MS: Final = 120_000
TICK_MS: Final = 6000
OUTLASTS_MS: Final = 20 * TICK_MS
"""A session that outlasts a restart of its server, however long Java takes to start."""
_chroots = itertools.count()


@pytest.fixture(scope="package")
def server() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper() as running:
        yield running


@pytest.fixture(autouse=True)
def _patient_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node gives a fresh session 3 s, and a handshake 2 s: Java may need more on a busy machine.

    A handshake that takes too long is told as "timed out", and not as what it would come to.
    """
    monkeypatch.setattr(kazoo_session, "PEEK_MS", 60_000)
    monkeypatch.setattr(kazoo_handler, "ACCEPT_S", 60.0)


@pytest.fixture
def hosts(server: EmbeddedZooKeeper) -> str:
    return f"{server.hosts}/test-{next(_chroots)}"


@pytest.fixture
async def sessions(hosts: str) -> AsyncIterator[Connect]:
    opened: list[ZooKeeper] = []

    async def another() -> ZooKeeper:
        opened.append(
            await connect(hosts, session_timeout_ms=10_000, connection_timeout_ms=CONNECT_MS)
        )
        return opened[-1]

    yield another
    for session in opened:
        await session.close()


@pytest.fixture
async def session(sessions: Connect) -> ZooKeeper:
    return await sessions()


def expire(session: ZooKeeper, server: EmbeddedZooKeeper) -> None:
    """End a session behind its back: connect to it a second time and close that.

    Whoever connects to a session takes it from whoever had it. So the session itself, which is
    back after 50 ms, is kept from connecting until the second one has closed it: else it takes it
    back where this thread is slow, and the session goes on for ever.
    """
    assert isinstance(session, KazooSession)
    connection = session._client._connection
    connect_to, is_closed = connection._connect, threading.Event()

    def connect_later(*address: Any) -> Any:
        is_closed.wait()
        return connect_to(*address)

    connection._connect = connect_later
    try:
        twin = KazooClient(hosts=server.hosts, client_id=session._client.client_id, timeout=60)
        twin.start(timeout=60)
        twin.stop()
        twin.close()
    finally:
        connection._connect = connect_to
        is_closed.set()


async def told_within(future: asyncio.Future[None], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        await future
