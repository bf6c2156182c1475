"""The election and its fence, against ZooKeeper in memory.

Source: docs/spec/cluster.md §2.16 checks C1 and C2.
"""

from __future__ import annotations

import asyncio

import pytest

from barnabas.broker.controller.controller_election import ControllerElection, ControllerMoved
from barnabas.client.zookeeper.interface import (
    BadVersion,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    SessionState,
    Set,
    Stat,
)
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper


@pytest.fixture
async def ensemble() -> SimEnsemble:
    return SimEnsemble(asyncio.get_running_loop())


def ignored() -> None:
    return None


def candidate(
    ensemble: SimEnsemble, node_id: int, former_session: int | None = None
) -> ControllerElection:
    session = ensemble.connect()
    return ControllerElection(session, node_id, now_ms=lambda: 7, former_session=former_session)


async def test_the_first_controller_has_epoch_one(ensemble: SimEnsemble) -> None:
    first, second = candidate(ensemble, 1), candidate(ensemble, 2)
    assert await first.campaign(ignored)
    assert not await second.campaign(ignored)
    assert (first.epoch, second.epoch) == (1, 0)
    assert second.controller_id == 1
    record = znodes.ControllerRecord.from_json((await ensemble.connect().get("/controller"))[0])
    assert record.broker_id == 1


async def test_of_many_who_stand_at_once_one_wins(ensemble: SimEnsemble) -> None:
    candidates = [candidate(ensemble, node_id) for node_id in range(5)]
    won = await asyncio.gather(*(one.campaign(ignored) for one in candidates))
    assert sum(won) == 1
    assert (await ensemble.connect().get("/controller_epoch"))[0] == b"1"


async def test_the_losers_are_told_when_the_office_is_vacant(ensemble: SimEnsemble) -> None:
    first, second = candidate(ensemble, 1), candidate(ensemble, 2)
    await first.campaign(ignored)
    vacant = asyncio.Event()
    await second.campaign(vacant.set)
    await first.resign()
    async with asyncio.timeout(60):
        await vacant.wait()
    assert await second.campaign(ignored)
    assert second.epoch == 2


async def test_a_controller_that_was_replaced_writes_nothing(ensemble: SimEnsemble) -> None:
    zombie, rival = candidate(ensemble, 1), candidate(ensemble, 2)
    observer = ensemble.connect()
    await zombie.campaign(ignored)
    await observer.create("/state", b"before")
    await observer.delete("/controller")
    await rival.campaign(ignored)
    with pytest.raises(ControllerMoved):
        await zombie.fenced(Set("/state", b"after"))
    await zombie.resign()
    assert (await observer.get("/state"))[0] == b"before"
    assert await observer.exists("/controller") is not None


async def test_a_conflict_on_the_znode_itself_is_no_loss_of_office(ensemble: SimEnsemble) -> None:
    election = candidate(ensemble, 1)
    await election.campaign(ignored)
    await election.fenced(Create("/state", b"0"))
    with pytest.raises(BadVersion):
        await election.fenced(Set("/state", b"1", 5))
    assert election.is_won


async def test_a_lost_answer_is_found_out_by_looking_again(ensemble: SimEnsemble) -> None:
    session = ensemble.connect()
    await session.create("/controller_epoch", b"0")
    election = ControllerElection(session, 1, now_ms=lambda: 7)
    session.lose_next_answer()
    session.lose_next_answer()
    assert await election.campaign(ignored)
    await election.fenced(Create("/state"))


async def test_the_office_of_a_former_life_is_taken_over_at_once(ensemble: SimEnsemble) -> None:
    session = ensemble.connect()
    former = ControllerElection(session, 1, now_ms=lambda: 7)
    await former.campaign(ignored)
    stranger = candidate(ensemble, 2)
    assert not await stranger.campaign(ignored)
    reborn = candidate(ensemble, 1, former_session=session.session_id)
    assert await reborn.campaign(ignored)
    assert reborn.epoch == 2
    with pytest.raises(ControllerMoved):
        await former.fenced(Create("/state"))


async def elected(ensemble: SimEnsemble) -> tuple[ControllerElection, SimZooKeeper]:
    session = ensemble.connect()
    election = ControllerElection(session, 1, now_ms=lambda: 7)
    assert await election.campaign(ignored)
    return election, session


async def test_a_write_whose_answer_is_lost_is_recognised_as_its_own(ensemble: SimEnsemble) -> None:
    election, session = await elected(ensemble)
    observer = ensemble.connect()
    await observer.create("/old")
    await observer.create("/state", b"0")
    session.lose_next_answer()
    created, changed, removed = await election.fenced(
        Create("/new", b"new"), Set("/state", b"1", 0), Delete("/old")
    )
    assert created == "/new"
    assert isinstance(changed, Stat)
    assert changed == await observer.exists("/state")
    assert changed.version == 1
    assert removed is None
    assert await observer.exists("/old") is None
    await election.fenced(Set("/state", b"2", changed.version))


async def test_a_write_that_never_reached_zookeeper_is_sent_again(ensemble: SimEnsemble) -> None:
    election, session = await elected(ensemble)
    writing = asyncio.create_task(election.fenced(Create("/state", b"0")))
    await asyncio.sleep(0)
    session.suspend()
    await asyncio.sleep(0)
    assert await ensemble.connect().exists("/state") is None
    session.resume()
    assert await writing == ["/state"]
    assert election.is_won


async def test_an_unconditional_write_may_be_applied_twice(ensemble: SimEnsemble) -> None:
    election, session = await elected(ensemble)
    await election.fenced(Create("/state", b"0"))
    session.lose_next_answer()
    (stat,) = await election.fenced(Set("/state", b"1"))
    assert stat.version == 2


async def test_what_another_wrote_meanwhile_is_not_taken_for_its_own(ensemble: SimEnsemble) -> None:
    election, session = await elected(ensemble)
    observer = ensemble.connect()
    await election.fenced(Create("/state", b"0"))
    writings = [
        asyncio.create_task(election.fenced(operation))
        for operation in (Set("/state", b"1", 0), Create("/topic", b"mine"))
    ]
    await asyncio.sleep(0)
    session.suspend()
    await observer.set("/state", b"another's")
    await observer.create("/topic", b"another's")
    session.resume()
    outcomes = await asyncio.gather(*writings, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BadVersion, NodeExists]
    assert election.is_won


async def test_a_later_version_with_the_same_bytes_is_not_taken_for_its_own(
    ensemble: SimEnsemble,
) -> None:
    election, session = await elected(ensemble)
    observer = ensemble.connect()
    await election.fenced(Create("/state", b"0"))
    writing = asyncio.create_task(election.fenced(Set("/state", b"1", 0)))
    await asyncio.sleep(0)
    session.suspend()
    for data in (b"another's", b"1"):
        await observer.set("/state", data)
    session.resume()
    with pytest.raises(BadVersion):
        await writing


async def test_who_was_replaced_while_the_connection_was_lost_writes_nothing(
    ensemble: SimEnsemble,
) -> None:
    election, session = await elected(ensemble)
    observer, rival = ensemble.connect(), candidate(ensemble, 2)
    writing = asyncio.create_task(election.fenced(Create("/state")))
    await asyncio.sleep(0)
    session.suspend()
    await observer.delete("/controller")
    assert await rival.campaign(ignored)
    session.resume()
    with pytest.raises(ControllerMoved):
        await writing
    assert await observer.exists("/state") is None


async def test_who_stepped_down_while_the_connection_was_lost_sends_nothing_again(
    ensemble: SimEnsemble,
) -> None:
    election, session = await elected(ensemble)

    def stepped_down(state: SessionState) -> None:
        if state is SessionState.LOST:
            election.step_down()

    session.on_state.append(stepped_down)
    writing = asyncio.create_task(election.fenced(Create("/state")))
    await asyncio.sleep(0)
    session.expire()
    with pytest.raises(ControllerMoved):
        await writing
    assert await ensemble.connect().exists("/state") is None


async def test_a_write_is_given_up_when_no_connection_comes_back(ensemble: SimEnsemble) -> None:
    session = ensemble.connect(session_timeout_ms=20)
    election = ControllerElection(session, 1, now_ms=lambda: 7)
    assert await election.campaign(ignored)
    session.suspend()
    with pytest.raises(ConnectionLost):
        await election.fenced(Create("/state"))


async def test_one_try_says_that_it_does_not_know(ensemble: SimEnsemble) -> None:
    election, session = await elected(ensemble)
    session.lose_next_answer()
    with pytest.raises(ConnectionLost):
        await election.fenced_once(Create("/state"))
    assert await ensemble.connect().exists("/state") is not None
