"""How near a lease came to its end, and how often it ended."""

from __future__ import annotations

import math

from barnabas.broker.liveness.lease import LEAST_OVER_S, TimedLease
from barnabas.broker.runtime.sliding_minimum import SlidingMinimum


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_that_is_extended_in_time_is_never_lost() -> None:
    clock = Clock()
    lease = TimedLease(clock)
    assert (lease.losses, lease.remaining(), lease.least_remaining()) == (0, 0.0, 0.0)
    for _ in range(10):
        lease.extend(clock.now + 1)
        clock.now += 0.5
    assert lease.losses == 0
    assert lease.remaining() == 0.5


def test_a_lease_that_ends_by_itself_is_lost_once() -> None:
    clock = Clock()
    lease = TimedLease(clock)
    lease.extend(clock.now + 1)
    clock.now += 2
    assert lease.losses == 1
    lease.extend(clock.now + 1)
    assert lease.losses == 1


def test_a_lease_that_is_dropped_is_lost_once_however_often() -> None:
    clock = Clock()
    lease = TimedLease(clock)
    lease.drop()
    assert lease.losses == 0
    lease.extend(clock.now + 1)
    lease.drop()
    lease.drop()
    assert lease.losses == 1
    lease.extend(clock.now + 1)
    assert lease.losses == 1


def test_the_least_that_was_left_is_remembered_for_a_while() -> None:
    clock = Clock()
    lease = TimedLease(clock)
    lease.extend(clock.now + 1)
    clock.now += 0.9
    lease.extend(clock.now + 5)
    assert round(lease.least_remaining(), 6) == 0.1
    clock.now += LEAST_OVER_S + 1
    lease.extend(clock.now + 5)
    clock.now += 1
    lease.extend(clock.now + 5)
    clock.now += LEAST_OVER_S / 2
    lease.extend(clock.now + 5)
    assert lease.least_remaining() == 0.0  # it had ended by itself meanwhile


def test_a_minimum_forgets_what_is_older() -> None:
    minimum = SlidingMinimum(3)
    minimum.observe(1.0, 5.0)
    minimum.observe(1.5, 4.0)
    minimum.observe(2.0, 7.0)
    assert minimum.least(3.0) == 4.0
    assert minimum.least(4.5) == 7.0
    assert minimum.least(9.0) == math.inf
