"""Waiting for bytes, acknowledgements and watermarks: woken, never polled, never piled up."""

from __future__ import annotations

import asyncio
from math import inf

from barnabas.broker.replication.purgatory import (
    PURGE_MIN,
    DelayedFetch,
    DelayedProduce,
    HighWatermarkWaiters,
    UncommittedBytes,
)
from barnabas.protocol.errors import ErrorCode
from tests.replication.logs import turns


async def test_a_fetch_is_done_once_when_enough_bytes_have_come() -> None:
    done: list[None] = []
    wait = DelayedFetch(
        asyncio.get_running_loop(), missing=100, wait_s=60, done=lambda: done.append(None)
    )
    wait.grew(99)
    await turns()
    assert done == []
    wait.grew(1)
    wait.grew(50)
    assert done == []
    await turns()
    assert done == [None]


async def test_a_fetch_is_done_when_its_time_is_up() -> None:
    over = asyncio.Event()
    DelayedFetch(asyncio.get_running_loop(), missing=100, wait_s=0.001, done=over.set)
    await over.wait()


async def test_a_forgotten_fetch_is_never_done() -> None:
    done: list[None] = []
    loop = asyncio.get_running_loop()
    early, late = (
        DelayedFetch(loop, missing=1, wait_s=60, done=lambda: done.append(None)) for _ in range(2)
    )
    early.forget()
    early.grew(10)
    late.grew(10)
    late.forget()
    await turns()
    assert done == []


async def test_appends_are_answered_together_when_the_last_is_decided() -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, ErrorCode]] = []
    wait: DelayedProduce[str] = DelayedProduce(told.append)
    first, second = wait.expect("a"), wait.expect("b")
    first(ErrorCode.NONE)
    wait.start(loop, 60)
    assert told == []
    second(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    second(ErrorCode.NONE)
    assert told == [{"a": ErrorCode.NONE, "b": ErrorCode.NOT_LEADER_OR_FOLLOWER}]


async def test_what_was_decided_before_the_start_is_answered_at_once() -> None:
    told: list[dict[str, ErrorCode]] = []
    wait: DelayedProduce[str] = DelayedProduce(told.append)
    wait.expect("a")(ErrorCode.NONE)
    wait.start(asyncio.get_running_loop(), 60)
    assert told == [{"a": ErrorCode.NONE}]


async def test_what_is_not_decided_in_time_is_timed_out() -> None:
    over = asyncio.Event()
    told: list[dict[str, ErrorCode]] = []

    def done(codes: dict[str, ErrorCode]) -> None:
        told.append(codes)
        over.set()

    wait: DelayedProduce[str] = DelayedProduce(done)
    decided, late = wait.expect("a"), wait.expect("b")
    decided(ErrorCode.NONE)
    wait.start(asyncio.get_running_loop(), 0.001)
    await over.wait()
    late(ErrorCode.NONE)
    assert told == [{"a": ErrorCode.NONE, "b": ErrorCode.REQUEST_TIMED_OUT}]


def nothing(code: ErrorCode) -> None:
    return None


def test_waiters_are_called_in_order_of_offsets_when_theirs_is_passed() -> None:
    waits = HighWatermarkWaiters()
    called: list[tuple[int, ErrorCode]] = []
    for offset in (3, 1, 2):
        waits.add(offset, lambda code, offset=offset: called.append((offset, code)), inf, 0.0)  # type: ignore[misc]
    waits.complete_up_to(2)
    assert [offset for offset, _ in called] == [1, 2]
    waits.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert called[-1] == (3, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not waits


def test_waits_whose_time_is_over_do_not_pile_up() -> None:
    waits = HighWatermarkWaiters()
    waits.add(5, nothing, inf, 0.0)
    for number in range(100 * PURGE_MIN):
        waits.add(number, nothing, number + PURGE_MIN / 4, float(number))
    assert len(waits) <= PURGE_MIN
    waits.complete_up_to(100 * PURGE_MIN)
    assert not waits


def test_a_waiter_may_wait_again_when_it_is_called() -> None:
    waits = HighWatermarkWaiters()
    called: list[int] = []

    def again(code: ErrorCode) -> None:
        called.append(1)
        waits.add(7, lambda code: called.append(7), inf, 0.0)

    waits.add(1, again, inf, 0.0)
    waits.complete_up_to(5)
    assert called == [1]
    waits.complete_up_to(7)
    assert called == [1, 7]


def test_the_sizes_of_what_cannot_be_committed_are_added_up_in_the_end() -> None:
    uncommitted = UncommittedBytes()
    for end in range(1, 20_001):
        uncommitted.add(end, 10)
    assert uncommitted.up_to(5000) == 50_000
    assert uncommitted.up_to(19_999) == 49_990
    assert uncommitted
    assert uncommitted.up_to(20_000) == 100_010
    assert not uncommitted
