"""When a node proves its session to itself, and what a ZooKeeper that stalls makes of it.

Source: docs/beacons.md, "How long ZooKeeper may be away", point 11 (d). Time is simulated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from barnabas.broker.liveness.session_proofs import ProofTimer, SessionProofs
from barnabas.broker.liveness.voter import Voter
from barnabas.broker.settings.liveness_settings import BeaconTimes, proof_interval_s
from barnabas.client.zookeeper.interface import SessionState
from barnabas.protocol.zookeeper import znodes
from tests.sim.simulated_loop import SimulatedLoop, seeded_runner
from tests.sim.simulated_zookeeper import SimEnsemble, SimZooKeeper

NODE = 1
RECONNECT_S = 0.5
RETURN_S = 1.0


@asynccontextmanager
async def proving(loop: SimulatedLoop, session: SimZooKeeper) -> AsyncIterator[Voter]:
    """A registered voter whose session is proved."""
    for path in ("/brokers", znodes.BROKER_IDS, znodes.broker_path(NODE)):
        await session.create(path)
    await session.create(znodes.CONTROLLER_EPOCH, b"1")
    voter = Voter(BeaconTimes(), loop.time)
    proofs = SessionProofs(voter, session, NODE, loop.time)
    running = asyncio.ensure_future(proofs.run())
    proofs.registered(7)
    try:
        yield voter
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def refusals(loop: SimulatedLoop, session_ms: int, stall_s: float) -> list[float]:
    """When, from the first question of a stall on, the voter acknowledged nothing."""
    ensemble = SimEnsemble(loop, latency=loop.network.latency)
    session = ensemble.connect(session_ms)
    begun = asyncio.Event()

    def asked() -> None:
        session.on_ask = None
        ensemble.stall()
        begun.set()

    async with proving(loop, session) as voter:
        await asyncio.sleep(2 * session_ms / 1000)
        assert voter.acknowledge(1) is not None
        session.on_ask = asked
        await begun.wait()
        began, found = loop.time(), []
        loop.call_later(stall_s, ensemble.go_on, RECONNECT_S)
        while loop.time() < began + 2 * session_ms / 1000:
            if voter.acknowledge(1) is None:
                found.append(loop.time() - began)
            await asyncio.sleep(0.02)
    return found


def longest_s(session_ms: int) -> float:
    """The bound of docs/beacons.md."""
    session_s = session_ms / 1000
    return 0.9 * session_s - proof_interval_s(session_s) - RETURN_S


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9, 1.0])
@pytest.mark.parametrize("session_ms", [6000, 18_000, 40_000])
def test_a_voter_goes_on_through_every_stall_below_the_bound(session_ms: int, share: float) -> None:
    with seeded_runner(session_ms) as (runner, loop):
        assert runner.run(refusals(loop, session_ms, share * longest_s(session_ms))) == []


@pytest.mark.parametrize("session_ms", [6000, 18_000])
def test_a_voter_stops_before_a_session_can_be_over(session_ms: int) -> None:
    """The world above can tell: a longer stall stops it, at 0.9 of the session at the latest."""
    with seeded_runner(session_ms) as (runner, loop):
        found = runner.run(refusals(loop, session_ms, session_ms / 1000))
    assert found
    assert found[0] <= 0.9 * session_ms / 1000


async def proofs_at(loop: SimulatedLoop, answers_s: list[float]) -> list[float]:
    """When proofs are sent whose answers take so long, one after the other."""
    timer = ProofTimer(SimEnsemble(loop).connect(18_000))
    seen = []
    for answer_s in answers_s:
        await timer.wait()
        seen.append(loop.time())
        await asyncio.sleep(answer_s)
    return seen


def test_the_interval_counts_from_the_last_proof_sent_however_late_its_answer_comes() -> None:
    with seeded_runner(1) as (runner, loop):
        assert runner.run(proofs_at(loop, [0.25, 0.0, 7.0, 0.5])) == [0.0, 1.0, 2.0, 9.0]


async def connected_in_the_interval(loop: SimulatedLoop) -> float:
    session = SimEnsemble(loop).connect(18_000)
    timer = ProofTimer(session)
    await timer.wait()
    loop.call_later(0.25, session._tell, SessionState.CONNECTED)
    await timer.wait()
    return loop.time()


def test_a_new_connection_is_proved_at_once() -> None:
    """What is left of a lease may be shorter than the interval."""
    with seeded_runner(1) as (runner, loop):
        assert runner.run(connected_in_the_interval(loop)) == 0.25
