"""One real ZooKeeper for all tests of this folder; each test works below a path of its own."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from kazoo.client import KazooClient

from barnabas.client.zookeeper.interface import ZooKeeper
from barnabas.client.zookeeper.kazoo_session import KazooSession, connect
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper

Connect = Callable[[], Awaitable[ZooKeeper]]
_chroots = itertools.count()


@pytest.fixture(scope="package")
def server() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper() as running:
        yield running


@pytest.fixture
def hosts(server: EmbeddedZooKeeper) -> str:
    return f"{server.hosts}/test-{next(_chroots)}"


@pytest.fixture
async def sessions(hosts: str) -> AsyncIterator[Connect]:
    opened: list[ZooKeeper] = []

    async def another() -> ZooKeeper:
        opened.append(await connect(hosts, session_timeout_ms=10_000))
        return opened[-1]

    yield another
    for session in opened:
        await session.close()


@pytest.fixture
async def session(sessions: Connect) -> ZooKeeper:
    return await sessions()


def expire(session: ZooKeeper, server: EmbeddedZooKeeper) -> None:
    """End a session behind its back: connect to it a second time and close that."""
    assert isinstance(session, KazooSession)
    twin = KazooClient(hosts=server.hosts, client_id=session._client.client_id)
    twin.start()
    twin.stop()
    twin.close()


async def told_within(future: asyncio.Future[None], seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        await future
