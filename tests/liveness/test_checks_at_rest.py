"""When a controller need not ask ZooKeeper whether the role is still its own.

Source: docs/beacons.md point 11.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.liveness.lease import FIRST_EPOCH, TimedLease
from barnabas.broker.liveness.voter_set import VoterSet
from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.beacon import Beacon

VOTERS = frozenset({0, 1, 2})


def backed_authority(
    voters: frozenset[int] = VOTERS, session_s: float = 18.0
) -> tuple[ControllerAuthority, list[float]]:
    """One that is settled, was confirmed and acknowledged by all just now; and its clock."""
    now = [100.0]
    authority = ControllerAuthority(0, BeaconTimes(), lambda: now[0])
    authority.begin(FIRST_EPOCH, VoterSet(voters, session_s), session_s)
    authority.checked(100.0)
    authority.round_sent(100.0, vote=True)
    for voter in voters:
        authority.acknowledged(voter, 100.0, is_final=True)
    return authority, now


@pytest.mark.parametrize(
    ("voters", "is_backed"),
    [({0, 1, 2}, True), ({0}, True), ({0, 1, 2, 3}, True), ({0, 1}, False), ((), False)],
)
def test_zookeeper_need_not_be_asked_while_voters_that_cannot_fall_back_acknowledge(
    voters: Collection[int], is_backed: bool
) -> None:
    assert backed_authority(frozenset(voters))[0].is_backed_by_voters is is_backed


def test_zookeeper_is_asked_again_when_a_majority_was_silent_for_a_quarter_of_t() -> None:
    authority, now = backed_authority()
    now[0] += 0.12
    assert authority.is_backed_by_voters
    now[0] += 0.01
    assert not authority.is_backed_by_voters
    authority.acknowledged(1, 100.12, is_final=True)
    authority.acknowledged(2, 100.12, is_final=True)
    assert authority.is_backed_by_voters


@pytest.mark.parametrize(("session_s", "lately_s"), [(18.0, 1.0), (3.0, 0.5), (0.6, 0.5)])
def test_zookeeper_is_asked_as_often_as_a_session_is_proved_whatever_voters_say(
    session_s: float, lately_s: float
) -> None:
    authority, now = backed_authority(session_s=session_s)

    def acknowledge_at(moment: float) -> None:
        now[0] = moment
        for voter in VOTERS:
            authority.acknowledged(voter, now[0], is_final=True)

    acknowledge_at(100.0 + lately_s - 0.01)
    assert authority.is_backed_by_voters
    acknowledge_at(100.0 + lately_s + 0.01)
    assert not authority.is_backed_by_voters
    authority.checked(now[0])
    assert authority.is_backed_by_voters


def test_zookeeper_is_asked_while_another_set_of_voters_is_about_to_bind() -> None:
    authority, _ = backed_authority()
    authority.intend(VoterSet(frozenset({0, 1, 2, 3}), 18.0))
    assert not authority.is_backed_by_voters


def test_a_node_that_was_not_heard_for_half_of_t_is_judged_by_checks() -> None:
    authority, now = backed_authority()
    detector = FailureDetector(
        "c",
        0,
        BeaconTimes(),
        lambda: now[0],
        lambda *_: None,
        TimedLease(lambda: now[0]),
        authority,
        lambda: 7,
    )
    detector.take(Beacon("c", 1, 11, 5, 1, 0))
    assert detector.need_not_check({1: 11})
    assert not detector.need_not_check({1: 12}), "of this registration nothing was heard"
    assert not detector.need_not_check({1: 11, 2: 11})
    now[0] += 0.26
    for voter in VOTERS:
        authority.acknowledged(voter, now[0], is_final=True)
    assert authority.is_backed_by_voters
    assert not detector.need_not_check({1: 11})
