"""A request that waits longer than twice its time-out is told of, once, and not too many are."""

from __future__ import annotations

import logging

import pytest

from barnabas.broker.handlers.call import Call, PendingResponse
from barnabas.broker.net import watchdog
from barnabas.broker.net.dispatch import WAIT_MS
from barnabas.broker.net.watchdog import LINES_MAX, Watchdog
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import create_topics, heartbeat, list_groups
from tests.net.client import until
from tests.net.conftest import ListeningNode, Start

LIST = (list_groups.ListGroupsRequest(), 2)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watching(node: ListeningNode, clock: Clock) -> Watchdog:
    return Watchdog(lambda: node.listener.connections, clock)


def beat(group: str) -> tuple[heartbeat.HeartbeatRequest, int]:
    return heartbeat.HeartbeatRequest(group_id=group), 4


async def test_a_request_that_waits_twice_its_time_out_is_logged_once(
    start: Start, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start()
    client = await node.connect()
    client.send(beat("g"), LIST)
    await until(lambda: "g" in node.toys.pending)
    dog = watching(node, clock)
    with caplog.at_level(logging.WARNING):
        await dog.look()
        clock.now += 2 * WAIT_MS / 1000
        await dog.look()
        assert not caplog.messages
        clock.now += 1
        for _ in range(3):
            await dog.look()
    [line] = caplog.messages
    assert "api=Heartbeat version=4 waited_ms=61000 timeout_ms=30000" in line
    node.toys.resolve("g")
    assert [(await client.receive())[0] for _ in range(2)] == [0, 1]
    await dog.look()
    assert not dog._seen


async def test_the_time_out_is_the_one_that_the_request_names(
    start: Start, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start()
    pending = PendingResponse()

    def create(call: Call) -> PendingResponse:
        return pending

    node.dispatcher.register({ApiKey.CREATE_TOPICS: create})
    client = await node.connect()
    client.send((create_topics.CreateTopicsRequest(topics=[], timeout_ms=1234), 4))
    await until(lambda: bool(node.listener.connections))
    [connection] = node.listener.connections
    await until(lambda: connection.longest_waiting() is pending)
    assert pending.wait_ms == 1234
    pending.respond(create_topics.CreateTopicsResponse())
    await client.receive()
    assert connection.longest_waiting() is None


async def test_a_request_that_takes_the_place_of_another_starts_anew(
    start: Start, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start()
    client = await node.connect()
    dog = watching(node, clock)
    for group in "abc":
        client.send(beat(group))
        await until(lambda group=group: group in node.toys.pending)  # type: ignore[misc]
        await dog.look()
        clock.now += 1.5 * WAIT_MS / 1000
        await dog.look()
        node.toys.resolve(group)
        await client.receive()
    assert not caplog.messages


async def test_many_are_told_of_in_few_lines(
    start: Start,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watchdog, "TURN_CONNECTIONS", 4)
    node = await start()
    for number in range(2 * LINES_MAX):
        client = await node.connect()
        client.send(beat(f"g{number}"))
    await until(lambda: len(node.toys.pending) == 2 * LINES_MAX)
    dog = watching(node, clock)
    with caplog.at_level(logging.WARNING):
        await dog.look()
        clock.now += 61
        await dog.look()
        await dog.look()
    assert len(caplog.messages) == LINES_MAX + 1
    assert caplog.messages[-1].endswith("n=20")
