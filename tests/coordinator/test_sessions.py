"""How long a member may be silent. Source: docs/spec/coordinator.md §5.2."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.coordinator.group import Member, PendingRequest
from barnabas.coordinator.sessions import NEW_MEMBER_JOIN_TIMEOUT_MS, Sessions
from barnabas.coordinator.timer import TimerQueue
from tests.sim.simulated_loop import SimulatedLoop


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = SimulatedLoop(1)
    yield made
    made.close()


@pytest.fixture
def sessions(loop: SimulatedLoop) -> Sessions:
    return Sessions(CoordinatorConfig(), TimerQueue(loop))


def a_member() -> Member:
    return Member(
        "m-1",
        instance_id=None,
        client_id="m",
        client_host="/10.0.0.7",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols=(),
    )


def silent_until(loop: SimulatedLoop, sessions: Sessions, member: Member) -> int:
    """Milliseconds after which the session expires."""
    sessions.prepare(member, loop.stop)
    began = loop.time()
    sessions.begin_first_join(member) if member.is_new else sessions.renew(member)
    sessions.renew(member)
    loop.run_forever()
    return round((loop.time() - began) * 1000)


def test_a_session_lasts_as_long_as_the_member_asked_for(
    loop: SimulatedLoop, sessions: Sessions
) -> None:
    assert silent_until(loop, sessions, a_member()) == 10_000


def test_nothing_renews_the_session_of_a_member_that_was_never_answered(
    loop: SimulatedLoop, sessions: Sessions
) -> None:
    member = a_member()
    member.is_new = True
    assert silent_until(loop, sessions, member) == NEW_MEMBER_JOIN_TIMEOUT_MS


def test_a_member_that_waits_for_its_answer_has_not_expired_unless_it_is_new(
    sessions: Sessions,
) -> None:
    member = a_member()
    assert sessions.has_expired(member)
    member.join = PendingRequest(5, lambda _: None)
    assert not sessions.has_expired(member)
    member.is_new = True
    assert sessions.has_expired(member)


@pytest.mark.parametrize(
    ("timeout_ms", "is_allowed"),
    [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)],
)
def test_a_session_timeout_is_bounded(
    sessions: Sessions, timeout_ms: int, is_allowed: bool
) -> None:
    assert sessions.is_allowed(timeout_ms) is is_allowed
