"""Waiting for bytes and for acknowledgements: woken, never polled, with one timer each."""

from __future__ import annotations

import asyncio

from barnabas.broker.replication.purgatory import DelayedFetch, DelayedProduce
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
