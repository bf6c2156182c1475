"""Many requests on many connections at once take many turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from barnabas.broker.net import connection, connection_scheduler
from barnabas.broker.net.connection import Connection
from barnabas.broker.net.connection_scheduler import (
    FLUSHES_PER_LOOK,
    SHARE_REQUESTS,
    SHARES_PER_VISIT,
    TURN_S,
    ConnectionScheduler,
)
from barnabas.protocol.messages import list_groups
from tests.harness.compiled_code import interpreted_only
from tests.net.client import until
from tests.net.conftest import Start

LIST = (list_groups.ListGroupsRequest(), 2)


@interpreted_only
async def test_a_turn_serves_no_more_requests_than_its_share_and_one_connections(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_scheduler, "TURN_REQUESTS", 40)
    node = await start()
    clients = [await node.connect() for _ in range(20)]
    for client in clients:
        client.send(*[LIST] * 30)
    seen = [0]

    def is_done() -> bool:
        seen.append(len(node.toys.seen))
        return seen[-1] == 600

    await until(is_done)
    growth = [after - before for before, after in zip(seen, seen[1:], strict=False)]  # noqa: RUF007
    assert max(growth) <= 2 * (40 + 30)
    for client in clients:
        assert [(await client.receive())[0] for _ in range(30)] == list(range(30))
    await asyncio.sleep(0)
    assert not node.listener.scheduler.is_spent
    assert node.limits.requests.used == 0


class Loop:
    """A loop whose clock is set by hand and whose callbacks are called by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for callback in due:
            callback()


class Greedy(Connection):
    """A connection that always has more to serve, each request taking so many seconds."""

    def __init__(self, scheduler: ConnectionScheduler, loop: Loop, request_s: float) -> None:
        self.scheduler, self.loop, self.request_s = scheduler, loop, request_s
        self.served = 0
        self.is_dirty = False

    def flush(self) -> None:
        self.scheduler.shares_left = SHARES_PER_VISIT
        while True:
            if self.scheduler.requests_left <= 0 and not self.scheduler.take_share():
                break
            self.scheduler.requests_left -= 1
            self.served += 1
            self.loop.now += self.request_s
        self.is_dirty = True
        self.scheduler.add(self)


def greedy(count: int, request_s: float) -> tuple[Loop, list[Greedy]]:
    loop = Loop()
    scheduler = ConnectionScheduler(cast("asyncio.AbstractEventLoop", loop))
    connections = [Greedy(scheduler, loop, request_s) for _ in range(count)]
    for each in connections:
        each.is_dirty = True
        scheduler.add(each)
    return loop, connections


@interpreted_only
def test_a_turn_ends_with_its_time_however_slow_requests_are() -> None:
    loop, _ = greedy(100, request_s=0.002)
    for _ in range(50):
        began = loop.now
        loop.turn()
        assert loop.now - began <= TURN_S + SHARE_REQUESTS * 0.002


@interpreted_only
def test_connections_that_always_have_more_are_served_in_turn() -> None:
    loop, connections = greedy(100, request_s=0.0001)
    for _ in range(1000):
        loop.turn()
    served = [each.served for each in connections]
    assert max(served) - min(served) <= 2 * SHARES_PER_VISIT * SHARE_REQUESTS


@interpreted_only
def test_writing_to_very_many_connections_takes_many_turns() -> None:
    loop, _ = greedy(0, 0.0)
    scheduler = ConnectionScheduler(cast("asyncio.AbstractEventLoop", loop))

    class Slow(Connection):
        def __init__(self) -> None:
            self.is_dirty = True

        def flush(self) -> None:
            loop.now += 0.001

    for _ in range(1000):
        scheduler.add(Slow())
    worst = 0.0
    while loop.soon:
        began = loop.now
        loop.turn()
        worst = max(worst, loop.now - began)
    assert loop.now == pytest.approx(1.0)
    assert worst <= FLUSHES_PER_LOOK * 0.001 + 1e-9


async def test_one_connection_with_very_much_to_ask_leaves_turns_to_others(start: Start) -> None:
    node = await start()
    greedy, modest = await node.connect(), await node.connect()
    await until(lambda: len(node.listener.connections) == 2)
    greedy.send(*[LIST] * 2000)
    modest.send(LIST)
    await modest.receive()
    assert len(node.toys.seen) < 2001
    for number in range(2000):
        assert (await greedy.receive())[0] == number


@interpreted_only
async def test_after_a_long_answer_the_clock_is_looked_at(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    take_share = ConnectionScheduler.take_share

    def look(scheduler: ConnectionScheduler) -> bool:
        looks.append(scheduler.requests_left)
        return take_share(scheduler)

    monkeypatch.setattr(ConnectionScheduler, "take_share", look)
    node = await start()
    client = await node.connect()
    monkeypatch.setattr(connection, "LONG_BYTES", 1 << 20)
    client.send(*[LIST] * 12)
    for _ in range(12):
        await client.receive()
    short = len(looks)
    monkeypatch.setattr(connection, "LONG_BYTES", 1)
    client.send(*[LIST] * 12)
    for _ in range(12):
        await client.receive()
    assert short < 12 <= len(looks) - short


@interpreted_only
def test_a_connection_that_fails_is_given_up_and_those_behind_it_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop, _ = greedy(0, 0.0)
    scheduler = ConnectionScheduler(cast("asyncio.AbstractEventLoop", loop))
    told: list[str] = []

    class Failing(Connection):
        def __init__(self, name: str) -> None:
            self.name, self.is_dirty = name, True

        def flush(self) -> None:
            if self.name == "bad":
                raise OSError(24, "Too many open files")
            told.append(f"{self.name} is served")

        def abort(self) -> None:
            told.append(f"{self.name} is given up")

    connections = [Failing("first"), Failing("bad"), Failing("last")]
    for each in connections:
        scheduler.add(each)
    loop.turn()
    assert told == ["first is served", "bad is given up", "last is served"]
    assert not any(each.is_dirty for each in connections)
    assert "Too many open files" in caplog.text


@interpreted_only
async def test_a_connection_whose_answer_cannot_be_written_ends_and_another_is_answered(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start()
    bad = await node.connect()
    await until(lambda: len(node.listener.connections) == 1)
    (broken,) = node.listener.connections
    good = await node.connect()

    def fail() -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(broken, "_write", fail)
    bad.send(LIST)
    good.send(LIST)
    assert (await good.receive())[0] == 0
    await until(lambda: broken not in node.listener.connections)
    assert not broken._out
    assert node.limits.requests.used == 0
