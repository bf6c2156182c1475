"""Whose TLS handshake begins when, docs/spec/security.md §1 (S18)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from barnabas.broker.net.handshake_turns import SPACING_S, HandshakeTurns


class Clock:
    """A loop whose time passes when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        self._timers.append((self.now_s + delay, callback))
        return self

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    async def pass_by(self, seconds: float) -> None:
        """Call what is due meanwhile, each at its time."""
        until = self.now_s + seconds
        await settle()
        while self._timers and min(self._timers)[0] <= until + 1e-9:
            due = min(self._timers, key=lambda timer: timer[0])
            self._timers.remove(due)
            self.now_s = max(self.now_s, due[0])
            due[1]()
            await settle()
        self.now_s = until


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Peers:
    """Who waits at a listener, and when each was let in."""

    def __init__(self, rate: int) -> None:
        self.clock = Clock()
        self.turns = HandshakeTurns(self.clock, lambda: rate)  # type: ignore[arg-type]
        self.let_in: list[tuple[str, float]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.too_late = 0

    def come(self, host: str, count: int = 1, wait_s_max: float = 10.0) -> None:
        self.tasks += [asyncio.create_task(self._one(host, wait_s_max)) for _ in range(count)]

    async def _one(self, host: str, wait_s_max: float) -> None:
        if await self.turns.wait(host, wait_s_max):
            self.let_in.append((host, self.clock.now_s - 100.0))
        else:
            self.too_late += 1


async def test_no_more_begin_in_a_second_than_the_rate_says() -> None:
    peers = Peers(100)
    peers.come("a", 300)
    await peers.clock.pass_by(1.0)
    assert len(peers.let_in) == pytest.approx(100, abs=2)
    await peers.clock.pass_by(1.0)
    assert len(peers.let_in) == pytest.approx(200, abs=2)


async def test_no_two_begin_closer_than_two_milliseconds_whatever_the_rate() -> None:
    peers = Peers(10**9)
    peers.come("a", 20)
    await peers.clock.pass_by(1.0)
    times = [when for _, when in peers.let_in]
    assert min(b - a for a, b in pairwise(times)) >= SPACING_S - 1e-9


async def test_an_address_does_not_wait_for_another_that_came_by_the_thousand() -> None:
    peers = Peers(200)
    peers.come("flood", 1000)
    await peers.clock.pass_by(0.1)
    peers.come("a")
    peers.come("b")
    began = peers.clock.now_s - 100.0
    await peers.clock.pass_by(0.1)
    waited = {host: when - began for host, when in peers.let_in if host != "flood"}
    assert waited.keys() == {"a", "b"}
    assert max(waited.values()) <= 4 * 0.005


async def test_of_one_address_the_first_comes_first() -> None:
    peers = Peers(200)
    order: list[int] = []

    async def one(number: int) -> None:
        await peers.turns.wait("a", 10.0)
        order.append(number)

    tasks = [asyncio.create_task(one(number)) for number in range(10)]
    await peers.clock.pass_by(1.0)
    await asyncio.gather(*tasks)
    assert order == list(range(10))


async def test_who_would_be_let_in_too_late_is_told_at_once_and_takes_no_turn() -> None:
    peers = Peers(10)
    peers.come("a", 100, wait_s_max=2.0)
    await settle()
    assert peers.too_late == pytest.approx(79, abs=2)
    peers.come("b", wait_s_max=2.0)
    await peers.clock.pass_by(3.0)
    assert len(peers.let_in) + peers.too_late == 101
    assert "b" in dict(peers.let_in)


async def test_who_leaves_while_it_waits_takes_nobodys_turn() -> None:
    peers = Peers(10)
    peers.come("a", 50)
    await settle()
    for task in peers.tasks[1:]:
        task.cancel()
    await asyncio.gather(*peers.tasks[1:], return_exceptions=True)
    assert len(peers.turns) == 1
    peers.come("b")
    await peers.clock.pass_by(0.3)
    assert {host for host, _ in peers.let_in} == {"a", "b"}
    assert not len(peers.turns)


async def test_after_a_pause_no_burst_makes_up_for_it() -> None:
    peers = Peers(10)
    peers.come("a", 2)
    await peers.clock.pass_by(1.0)
    await peers.clock.pass_by(60.0)
    peers.let_in.clear()
    peers.come("a", 30)
    await peers.clock.pass_by(1.0)
    assert len(peers.let_in) <= 12
