"""Counting requests: answered at once, later, and by a coroutine."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers.call import Call, Handler, PendingResponse
from barnabas.broker.metrics.request_meter import BOUNDS_S, MeteredDispatcher
from barnabas.broker.net.dispatch import response_frame
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.compiler import encoder
from barnabas.protocol.errors import ErrorCode, Refused
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


async def test_codes_of_answers_are_counted_however_they_are_given() -> None:
    refused = heartbeat.HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    pending = PendingResponse()

    async def later(call: Call) -> Any:
        return refused

    def raises(call: Call) -> Any:
        raise Refused(ErrorCode.NOT_COORDINATOR)

    handlers: list[tuple[Handler, ErrorCode]] = [
        (lambda call: refused, ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda call: pending, ErrorCode.UNKNOWN_MEMBER_ID),
        (later, ErrorCode.UNKNOWN_MEMBER_ID),
        (raises, ErrorCode.NOT_COORDINATOR),
    ]
    for handler, code in handlers:
        async with asyncio.TaskGroup() as tasks:
            dispatcher = metered(tasks, handler)
            dispatcher.dispatch(frame(), PEER)
            pending.respond(refused)
        assert dispatcher.meters["Heartbeat"].errors == {code: 1}


async def test_a_handler_that_fails_is_counted_as_an_unknown_error() -> None:
    def broken(call: Call) -> Any:
        raise RuntimeError("a bug")

    async with asyncio.TaskGroup() as tasks:
        dispatcher = metered(tasks, broken)
        dispatcher.dispatch(frame(), PEER)
    assert dispatcher.meters["Heartbeat"].errors == {ErrorCode.UNKNOWN_SERVER_ERROR: 1}


async def test_what_a_coroutine_answers_is_counted_with_its_bytes() -> None:
    async def later(call: Call) -> Any:
        return ANSWER

    async with asyncio.TaskGroup() as tasks:
        dispatcher = metered(tasks, later)
        pending: Any = dispatcher.dispatch(frame(), PEER)
    sent = response_frame(pending.route, 1, pending.answer)
    assert isinstance(sent, bytes)
    assert dispatcher.meters["Heartbeat"].bytes_out == len(sent)
