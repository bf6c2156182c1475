"""The controller's fence on a real ZooKeeper (docs/spec/cluster.md §2.16 checks C1 and C2)."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.controller.controller_election import ControllerElection, ControllerMoved
from barnabas.client.zookeeper.interface import BadVersion, Create, Set, ZooKeeper
from barnabas.console.development.embedded_zookeeper import EmbeddedZooKeeper
from tests.zookeeper.conftest import Connect, expire


def candidate(
    session: ZooKeeper, node_id: int, former_session: int | None = None
) -> ControllerElection:
    return ControllerElection(session, node_id, now_ms=lambda: 7, former_session=former_session)


def ignored() -> None:
    return None


async def test_a_controller_that_was_replaced_writes_nothing(sessions: Connect) -> None:
    first, second = await sessions(), await sessions()
    zombie, rival = candidate(first, 1), candidate(second, 2)
    assert await zombie.campaign(ignored)
    await zombie.fenced(Create("/state", b"before"))
    with pytest.raises(BadVersion):
        await zombie.fenced(Set("/state", b"conflict", 9))
    before = await second.exists("/state")
    await second.delete("/controller")
    assert await rival.campaign(ignored)
    with pytest.raises(ControllerMoved):
        await zombie.fenced(Set("/state", b"after"))
    await zombie.resign()
    assert await second.exists("/state") == before
    assert await second.exists("/controller") is not None


async def test_an_expired_controller_is_followed_with_the_next_epoch(
    sessions: Connect, server: EmbeddedZooKeeper
) -> None:
    first, second = await sessions(), await sessions()
    former, next_one = candidate(first, 1), candidate(second, 2)
    await former.campaign(ignored)
    vacant = asyncio.Event()
    assert not await next_one.campaign(vacant.set)
    await asyncio.to_thread(expire, first, server)
    async with asyncio.timeout(60):
        await vacant.wait()
    assert await next_one.campaign(ignored)
    assert next_one.epoch == 2


async def test_the_office_of_a_dead_process_is_taken_over_before_its_session_ends(
    sessions: Connect,
) -> None:
    first, second = await sessions(), await sessions()
    await candidate(first, 1).campaign(ignored)
    reborn = candidate(second, 1, former_session=first.session_id)
    assert await reborn.campaign(ignored)
    stat = await second.exists("/controller")
    assert stat is not None
    assert stat.ephemeral_owner == second.session_id
