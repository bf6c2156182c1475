"""Waiting for the high watermark, and being forgotten when nothing moves it."""

from __future__ import annotations

from math import inf

from barnabas.broker.replication.commit_waits import FEW, CommitWaits
from barnabas.broker.replication.readers import Unread
from barnabas.protocol.errors import ErrorCode


def nothing(code: ErrorCode) -> None:
    return None


def test_each_is_told_when_its_offset_is_passed_in_order_of_offsets() -> None:
    waits = CommitWaits()
    told: list[tuple[int, ErrorCode]] = []
    for offset in (3, 1, 2):
        waits.add(offset, lambda code, offset=offset: told.append((offset, code)), inf, 0.0)  # type: ignore[misc]
    waits.reach(2)
    assert [offset for offset, _ in told] == [1, 2]
    waits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert told[-1] == (3, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not waits


def test_waits_whose_time_is_over_do_not_pile_up() -> None:
    waits = CommitWaits()
    waits.add(5, nothing, inf, 0.0)
    for number in range(100 * FEW):
        waits.add(number, nothing, number + FEW / 4, float(number))
    assert len(waits) <= FEW
    waits.reach(100 * FEW)
    assert not waits


def test_who_waits_may_wait_for_more_when_told() -> None:
    waits = CommitWaits()
    told: list[int] = []

    def again(code: ErrorCode) -> None:
        told.append(1)
        waits.add(7, lambda code: told.append(7), inf, 0.0)

    waits.add(1, again, inf, 0.0)
    waits.reach(5)
    assert told == [1]
    waits.reach(7)
    assert told == [1, 7]


def test_the_sizes_of_what_cannot_be_committed_are_added_up_in_the_end() -> None:
    unread = Unread()
    for end in range(1, 20_001):
        unread.add(end, 10)
    assert unread.up_to(5000) == 50_000
    assert unread.up_to(19_999) == 49_990
    assert unread
    assert unread.up_to(20_000) == 100_010
    assert not unread
