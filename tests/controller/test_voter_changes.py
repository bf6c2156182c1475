"""Who is to vote, and how the way there binds the controller (docs/beacons.md, points 10, 13)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from barnabas.broker.controller.context import ControllerContext, LiveNode
from barnabas.broker.controller.controller_election import ControllerElection
from barnabas.broker.controller.voter_changes import VoterChanges
from barnabas.broker.controller.voters_znode import VotersZnode
from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.liveness.voter_set import ZOOKEEPER_ALONE, VoterSet
from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_zookeeper import SimEnsemble

TIMES = BeaconTimes()
T = TIMES.timeout
SESSION_S = 18.0
REGISTRATION = znodes.BrokerRegistration(
    endpoints={"INTERNAL": ("host", 1)}, timestamp=0, sends_beacons=True, votes=True
)


def voters(*numbers: int) -> VoterSet:
    return VoterSet(frozenset(numbers), SESSION_S)


class Term:
    """Node 1 is controller; the test says who acknowledges its rounds."""

    def __init__(self) -> None:
        self.now = 100.0
        self.session = SimEnsemble(asyncio.get_running_loop()).connect()
        self.election = ControllerElection(
            self.session, 1, now_ms=lambda: 7, voters=VotersZnode(self.session)
        )
        self.context = ControllerContext()
        self.failure_detector = FailureDetector(
            "c",
            1,
            TIMES,
            lambda: self.now,
            lambda _, echo: None,
            TimedLease(lambda: self.now),
            ControllerAuthority(1, TIMES, lambda: self.now),
            lambda: 1,
        )
        self.controller_authority = self.failure_detector.controller_authority
        self.changes = VoterChanges(self.context, self.election, self.failure_detector, SESSION_S)

    async def begin(self) -> Term:
        assert await self.election.campaign(lambda: None)
        self.failure_detector.begin(self.election.epoch, ZOOKEEPER_ALONE, SESSION_S)
        for node in (1, 2, 3):
            self.add(node, REGISTRATION)
        return self

    def add(self, node: int, registration: znodes.BrokerRegistration) -> None:
        self.context.nodes[node] = LiveNode(node, node, registration)

    async def play(self, seconds: float, *acknowledging: int) -> None:
        for _ in range(round(seconds / TIMES.interval)):
            self.now += TIMES.interval
            self.controller_authority.checked(self.now)
            self.controller_authority.round_sent(self.now, vote=True)
            for node in acknowledging:
                self.controller_authority.acknowledged(node, self.now, is_final=True)
            await self.changes.keep()

    async def written(self) -> tuple[int, ...]:
        return znodes.VotersRecord.from_json((await self.session.get(znodes.VOTERS))[0]).voters


@pytest.fixture
async def term() -> Term:
    return await Term().begin()


async def test_the_second_form_begins_t_after_all_were_heard(term: Term) -> None:
    await term.play(0.9 * T, 2, 3)
    assert term.controller_authority.in_force[0] == ZOOKEEPER_ALONE
    assert voters(1, 2, 3) in term.controller_authority.in_force
    assert await term.written() == ()
    await term.play(0.9 * T, 2, 3)
    assert term.controller_authority.in_force == (voters(1, 2, 3),)
    assert await term.written() == (1, 2, 3)
    term.controller_authority.round_sent(term.now, vote=True)
    assert term.controller_authority.end_at >= term.now + 0.8 * T


async def test_a_voter_that_fell_silent_is_removed_and_added_when_it_is_heard_again(
    term: Term,
) -> None:
    await term.play(2 * T, 2, 3)
    await term.play(3 * T, 2)
    assert await term.written() == (1, 2)
    await term.play(2 * T, 2, 3)
    assert await term.written() == (1, 2, 3)


@pytest.mark.parametrize(
    "other",
    [
        replace(REGISTRATION, votes=False),
        replace(REGISTRATION, votes=False, sends_beacons=False),
        replace(REGISTRATION, sends_beacons=False),
    ],
    ids=["older", "Apache Kafka", "without beacons"],
)
async def test_a_coordinator_that_knows_no_voters_brings_the_first_form_back_at_once(
    term: Term, other: znodes.BrokerRegistration
) -> None:
    """Before it hears of this controller, whose role it may take over by the first form's rules."""
    await term.play(2 * T, 2, 3)
    term.controller_authority.checked(term.now - 0.7 * T)
    checked = term.now
    term.now += 0.5 * T
    term.add(4, other)
    term.changes.intend()
    term.controller_authority.round_sent(term.now, vote=True)
    assert term.controller_authority.end_at == pytest.approx(checked + T)
    await term.play(2 * T, 2, 3)
    assert await term.written() == ()
    del term.context.nodes[4]
    await term.play(2 * T, 2, 3)
    assert await term.written() == (1, 2, 3)


async def test_a_node_that_can_never_be_controller_changes_nothing(term: Term) -> None:
    term.add(4, replace(REGISTRATION, roles=("broker",), votes=False))
    await term.play(2 * T, 2, 3)
    assert await term.written() == (1, 2, 3)


async def test_a_change_of_unknown_outcome_binds_until_another_is_confirmed(term: Term) -> None:
    await term.play(2 * T, 2, 3)
    term.session.lose_next_answer()
    await term.play(2.3 * T, 2)
    assert await term.written() == (1, 2)
    assert set(term.controller_authority.in_force) == {voters(1, 2, 3), voters(1, 2)}
    await term.play(3 * T, 2, 3)
    assert term.controller_authority.in_force == (voters(1, 2, 3),)
    assert await term.written() == (1, 2, 3)


async def test_a_whim_that_was_never_sent_is_forgotten(term: Term) -> None:
    await term.play(2 * T, 2, 3)
    await term.play(1.2 * T, 2)
    assert voters(1, 2) in term.controller_authority.in_force
    await term.play(0.2 * T, 2, 3)
    assert term.controller_authority.in_force == (voters(1, 2, 3),)


async def test_an_unsettled_controller_changes_nothing(term: Term) -> None:
    await term.play(2 * T, 2, 3)
    term.failure_detector.begin(2, voters(1, 2, 3), SESSION_S)
    for _ in range(40):
        term.now += TIMES.interval
        term.controller_authority.checked(term.now)
        term.controller_authority.round_sent(term.now, vote=True)
        await term.changes.keep()
    assert not term.controller_authority.is_settled
    assert await term.written() == (1, 2, 3)
