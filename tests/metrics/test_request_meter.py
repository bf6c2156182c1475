"""Counting requests: answered at once, later, and by a coroutine."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers.call import Call, Handler, PendingResponse
from barnabas.broker.metrics.request_meter import BOUNDS_S, MeteredDispatcher
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.compiler import encoder
from barnabas.protocol.frame import request_frame
from barnabas.protocol.messages import heartbeat

PEER: Any = SimpleNamespace(is_internal=False, sasl=None, listener="X", host="h")
ANSWER = heartbeat.HeartbeatResponse()


class Clock:
    """A second passes with each look."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def frame() -> bytes:
    request = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    body = encoder(heartbeat.HeartbeatRequest, 4)(request)
    return request_frame(ApiKey.HEARTBEAT, 4, 1, "c", body)


def metered(tasks: asyncio.TaskGroup, handler: Handler) -> MeteredDispatcher:
    dispatcher = MeteredDispatcher(tasks, Clock())
    dispatcher.register({ApiKey.HEARTBEAT: handler})
    return dispatcher


async def test_an_answer_given_at_once_is_counted_with_its_bytes() -> None:
    async with asyncio.TaskGroup() as tasks:
        dispatcher = metered(tasks, lambda call: ANSWER)
        sent = frame()
        answer = dispatcher.dispatch(sent, PEER)
    meter = dispatcher.meters["Heartbeat"]
    assert sum(meter.buckets) == 1
    assert meter.buckets[BOUNDS_S.index(1.0)] == 1
    assert meter.seconds == 1.0
    assert meter.bytes_in == len(sent)
    assert meter.bytes_out == len(answer)  # type: ignore[arg-type]


async def test_a_parked_answer_is_counted_when_it_is_there_and_the_connection_is_told() -> None:
    pending = PendingResponse()
    told: list[PendingResponse] = []
    async with asyncio.TaskGroup() as tasks:
        dispatcher = metered(tasks, lambda call: pending)
        assert dispatcher.dispatch(frame(), PEER) is pending
        pending.add_done_callback(told.append)
        meter = dispatcher.meters["Heartbeat"]
        assert sum(meter.buckets) == 0
        pending.respond(ANSWER)
    assert sum(meter.buckets) == 1
    assert told == [pending]


async def test_a_coroutine_is_counted_when_it_ends() -> None:
    async def slow(call: Call) -> Any:
        await asyncio.sleep(0)
        return ANSWER

    async with asyncio.TaskGroup() as tasks:
        dispatcher = metered(tasks, slow)
        dispatcher.dispatch(frame(), PEER)
        assert sum(dispatcher.meters["Heartbeat"].buckets) == 0
    assert sum(dispatcher.meters["Heartbeat"].buckets) == 1


async def test_a_handler_that_fails_is_counted_too(caplog: pytest.LogCaptureFixture) -> None:
    def broken(call: Call) -> Any:
        raise RuntimeError("a bug")

    async with asyncio.TaskGroup() as tasks:
        dispatcher = metered(tasks, broken)
        dispatcher.dispatch(frame(), PEER)
    assert sum(dispatcher.meters["Heartbeat"].buckets) == 1
    assert "handler failed" in caplog.text
