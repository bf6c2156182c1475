"""Rules of leases one by one; docs/beacons.md has the argument they are part of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from barnabas.broker.liveness.beacon_sender import (
    AUTHORITY_LOSS_TIMEOUTS,
    AuthorityClaim,
    BeaconSender,
)
from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.broker.liveness.lease import FIRST_EPOCH, TimedLease
from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.beacon import Beacon, Echo

TIMES = BeaconTimes()
T = TIMES.timeout
NODE, CONTROLLER = 1, 2


@dataclass
class Pair:
    """A node and its controller, whose clocks agree; datagrams are handed over by the test."""

    now: float = 100.0
    beacons: list[Beacon] = field(default_factory=list)
    echoes: list[Echo] = field(default_factory=list)

    def __post_init__(self) -> None:
        def clock() -> float:
            return self.now

        self.lease = TimedLease(clock)
        lives = iter(range(1, 100))
        self.beacon_sender = BeaconSender(
            "c",
            NODE,
            TIMES,
            clock,
            self.lease,
            lambda _, beacon: self.beacons.append(beacon),
            lambda: next(lives),
        )
        self.failure_detector = FailureDetector(
            "c",
            CONTROLLER,
            TIMES,
            clock,
            lambda _, echo: self.echoes.append(echo),
            TimedLease(clock),
            ControllerAuthority(CONTROLLER, TIMES, clock),
            lambda: 1,
        )
        self.beacon_sender.begin_incarnation(7)
        self.failure_detector.begin(5)
        self.failure_detector.checked(self.now)
        self.failure_detector.admit(NODE, 7)

    def send_beacons(self) -> Beacon:
        """The node sends a beacon; nobody has received it yet."""
        self.beacon_sender.send_beacons([CONTROLLER], AuthorityClaim())
        return self.beacons[-1]

    def exchange(self) -> None:
        """A beacon and its echo, both received."""
        assert self.failure_detector.take(self.send_beacons())
        self.beacon_sender.receive_echo(self.echoes[-1])


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_a_node_that_was_never_echoed_holds_no_lease(pair: Pair) -> None:
    pair.send_beacons()
    assert not pair.lease.holds()
    assert not pair.lease.was_held


def test_a_lease_counts_from_when_the_beacon_was_sent(pair: Pair) -> None:
    sent = pair.now
    beacon = pair.send_beacons()
    pair.now += 0.2
    pair.failure_detector.checked(pair.now)
    pair.failure_detector.take(beacon)
    pair.beacon_sender.receive_echo(pair.echoes[-1])
    assert pair.lease.end == pytest.approx(sent + T - TIMES.margin)


def test_a_lease_never_outlasts_the_authority_of_the_controller(pair: Pair) -> None:
    checked = pair.now
    pair.now += 0.3
    pair.exchange()
    assert pair.lease.end == pytest.approx(checked + T - TIMES.margin)


def test_who_waits_for_a_lease_is_told_when_it_begins_and_not_when_it_lasts_longer(
    pair: Pair,
) -> None:
    told: list[bool] = []
    pair.lease.on_begun.append(lambda: told.append(pair.lease.holds()))
    pair.exchange()
    pair.exchange()
    assert told == [True]
    pair.now += 2 * T
    pair.failure_detector.checked(pair.now)
    pair.exchange()
    assert told == [True, True]


def test_a_lease_that_was_given_up_did_not_end_by_itself(pair: Pair) -> None:
    assert not pair.lease.ended_within(T)
    pair.exchange()
    assert not pair.lease.ended_within(T)
    pair.now += T
    assert pair.lease.ended_within(T)
    pair.now += T
    assert not pair.lease.ended_within(T)
    assert pair.lease.ended_within(3 * T)
    pair.lease.drop()
    assert not pair.lease.ended_within(3 * T)


def test_a_controller_without_authority_echoes_nobody(pair: Pair) -> None:
    pair.now += T
    pair.failure_detector.take(pair.send_beacons())
    assert pair.echoes == []


def test_a_node_is_silent_only_after_its_lease_is_over(pair: Pair) -> None:
    pair.now += 2 * T
    pair.failure_detector.checked(pair.now)
    pair.exchange()
    while pair.lease.holds():
        assert pair.failure_detector.silent({NODE: 7}) == []
        pair.now += 0.01
        pair.failure_detector.checked(pair.now)
    pair.now += TIMES.margin + 0.01
    pair.failure_detector.checked(pair.now)
    assert pair.failure_detector.silent({NODE: 7}) == [NODE]


def test_a_new_controller_acts_on_no_silence_before_t_has_passed(pair: Pair) -> None:
    pair.now += 0.9 * T
    pair.failure_detector.checked(pair.now)
    assert pair.failure_detector.silent({NODE: 7}) == []
    assert pair.failure_detector.may_hold_lease(NODE)


def test_a_controller_unsure_of_its_role_judges_nobody(pair: Pair) -> None:
    pair.now += 3 * T
    assert pair.failure_detector.silent({NODE: 7}) == []


def test_a_node_of_which_nothing_was_heard_is_judged_by_its_session_alone(pair: Pair) -> None:
    pair.now += 3 * T
    pair.failure_detector.checked(pair.now)
    assert pair.failure_detector.silent({3: 9}) == []


def test_a_node_that_is_shut_out_is_waited_for_though_it_is_heard(pair: Pair) -> None:
    pair.now += 2 * T
    pair.failure_detector.checked(pair.now)
    pair.exchange()
    pair.failure_detector.stop_echoing(NODE)
    echoed = pair.now
    while pair.now < echoed + T:
        assert pair.failure_detector.may_hold_lease(NODE)
        pair.now += 0.05
        pair.failure_detector.take(pair.send_beacons())
    assert not pair.failure_detector.may_hold_lease(NODE)
    assert not pair.lease.holds()


def test_a_node_is_echoed_only_once_it_has_acknowledged_the_state(pair: Pair) -> None:
    pair.failure_detector.stop_echoing(NODE)
    pair.failure_detector.take(pair.send_beacons())
    assert pair.echoes == []
    pair.failure_detector.admit(NODE, 7)
    pair.failure_detector.take(pair.send_beacons())
    assert len(pair.echoes) == 1


def test_a_node_admitted_under_an_older_registration_is_not_echoed(pair: Pair) -> None:
    pair.beacon_sender.begin_incarnation(8)
    pair.failure_detector.take(pair.send_beacons())
    assert pair.echoes == []


def test_doubled_and_late_beacons_change_nothing(pair: Pair) -> None:
    first, second = pair.send_beacons(), pair.send_beacons()
    assert pair.failure_detector.take(second)
    assert not pair.failure_detector.take(second)
    assert not pair.failure_detector.take(first)
    assert len(pair.echoes) == 1


def test_a_late_beacon_of_an_earlier_registration_changes_nothing(pair: Pair) -> None:
    old = pair.send_beacons()
    pair.beacon_sender.begin_incarnation(8)
    assert pair.failure_detector.take(pair.send_beacons())
    assert not pair.failure_detector.take(old)


def test_an_echo_for_an_earlier_life_extends_nothing(pair: Pair) -> None:
    pair.failure_detector.take(pair.send_beacons())
    pair.beacon_sender.begin_incarnation(8)
    pair.beacon_sender.receive_echo(pair.echoes[-1])
    assert not pair.lease.holds()


def test_an_echo_of_a_deposed_controller_extends_nothing(pair: Pair) -> None:
    pair.failure_detector.take(pair.send_beacons())
    echo = pair.echoes[-1]
    pair.beacon_sender.receive_echo(replace(echo, controller_epoch=6, validity_us=0))
    pair.beacon_sender.receive_echo(echo)
    assert not pair.lease.holds()


def test_an_echo_of_a_beacon_never_sent_extends_nothing(pair: Pair) -> None:
    pair.failure_detector.take(pair.send_beacons())
    echo = pair.echoes[-1]
    for sent_us in (echo.sent_us + 60_000_000, 0):
        pair.beacon_sender.receive_echo(replace(echo, sent_us=sent_us))
    assert not pair.lease.holds()


def test_a_lost_session_ends_the_lease_at_once(pair: Pair) -> None:
    pair.exchange()
    assert pair.lease.holds()
    pair.beacon_sender.begin_incarnation(8)
    assert not pair.lease.holds()


def test_a_leaving_node_is_waited_for_by_nobody(pair: Pair) -> None:
    pair.now += 2 * T
    pair.failure_detector.checked(pair.now)
    pair.exchange()
    pair.beacon_sender.leave([CONTROLLER])
    assert not pair.lease.holds()
    pair.failure_detector.take(pair.beacons[-1])
    assert not pair.failure_detector.may_hold_lease(NODE)


def test_a_controller_knows_who_left_before_it_was_elected(pair: Pair) -> None:
    """A controller that stops says that it leaves first, and gives up its role then."""
    pair.failure_detector.end()
    pair.failure_detector.take(pair.send_beacons())
    pair.beacon_sender.leave([CONTROLLER])
    pair.failure_detector.take(pair.beacons[-1])
    pair.failure_detector.begin(6)
    pair.failure_detector.checked(pair.now)
    assert pair.failure_detector.has_left(NODE, 7)
    assert not pair.failure_detector.has_left(NODE, 8), "registered anew, it may answer"


def test_who_begins_to_lead_under_a_new_controller_waits_until_older_leases_are_over(
    pair: Pair,
) -> None:
    pair.exchange()
    assert not pair.lease.is_settled(5)
    pair.now += T + 0.01
    pair.failure_detector.checked(pair.now)
    pair.exchange()
    assert pair.lease.is_settled(5)


def test_the_first_controller_of_a_cluster_has_no_older_leases_to_wait_for(pair: Pair) -> None:
    assert pair.lease.is_settled(FIRST_EPOCH)
    assert not pair.lease.is_settled(FIRST_EPOCH + 1)
    pair.lease.unsettle()
    assert pair.lease.is_settled(FIRST_EPOCH)


def test_the_silence_of_a_controller_is_noticed_after_t(pair: Pair) -> None:
    pair.exchange()
    pair.now += 0.9 * T
    assert not pair.beacon_sender.is_controller_silent()
    pair.now += 0.2 * T
    assert pair.beacon_sender.is_controller_silent()


def test_a_controller_that_waits_for_zookeeper_is_given_more_time(pair: Pair) -> None:
    begun = pair.now
    while pair.now < begun + 0.9 * AUTHORITY_LOSS_TIMEOUTS * T:
        pair.beacon_sender.receive_beacon(Beacon("c", 2, 1, 1, 1, 1, controller_epoch=5))
        assert not pair.beacon_sender.is_controller_silent()
        pair.now += 0.1
    pair.now = begun + 1.1 * AUTHORITY_LOSS_TIMEOUTS * T
    pair.beacon_sender.receive_beacon(Beacon("c", 2, 1, 1, 1, 1, controller_epoch=5))
    assert pair.beacon_sender.is_controller_silent()


def test_a_controller_that_says_it_has_authority_is_not_silent(pair: Pair) -> None:
    pair.now += 0.9 * T
    pair.beacon_sender.receive_beacon(
        Beacon("c", 2, 1, 1, 1, 1, controller_epoch=5, authority_us=1)
    )
    pair.now += 0.9 * T
    assert not pair.beacon_sender.is_controller_silent()
