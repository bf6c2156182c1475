"""Long requests are read, and long answers written, over many turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from barnabas.broker.handlers.call import Call, Parked
from barnabas.broker.net import dispatch
from barnabas.broker.net.dispatch import LONG_BYTES
from barnabas.protocol.compiler import encode, request_decoder_in_turns
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.frame import request_frame
from barnabas.protocol.messages import list_groups
from barnabas.protocol.wire import TURN_ELEMENTS
from tests.handlers.peer import SomePeer
from tests.net.conftest import Start

LIST = (list_groups.ListGroupsRequest(), 2)
COUNT = 20 * TURN_ELEMENTS
LONG = list_groups.ListGroupsRequest(states_filter=["x"] * COUNT)


def a_long_frame() -> bytes:
    body = encode(LONG, 4)
    assert len(body) > LONG_BYTES
    return request_frame(16, 4, 7, "test", body)


async def resolved(*parked: Any) -> int:
    """After how many turns of the loop all of them are."""
    turns = 0
    while not all(type(one) is Parked and one.is_resolved for one in parked):
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_a_long_request_is_read_over_many_turns(start: Start) -> None:
    node = await start()
    parked = node.dispatcher.dispatch(a_long_frame(), SomePeer())
    assert type(parked) is Parked
    assert not parked.passing
    assert node.toys.seen == []
    assert await resolved(parked) >= COUNT // TURN_ELEMENTS
    assert node.toys.seen == ["list"]


async def test_long_requests_are_read_one_after_the_other(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[int] = []
    now = [0]

    def noted(message_class: type, version: int) -> Any:
        def read(frame: bytes, offset: int) -> Generator[None, None, Any]:
            now[0] += 1
            under_way.append(now[0])
            steps: Any = request_decoder_in_turns(message_class, version)(frame, offset)
            request: Any = yield from steps
            now[0] -= 1
            return request

        return read

    monkeypatch.setattr(dispatch, "request_decoder_in_turns", noted)
    node = await start()
    parked = [node.dispatcher.dispatch(a_long_frame(), SomePeer()) for _ in range(3)]
    await resolved(*parked)
    assert under_way == [1, 1, 1]


async def test_a_long_request_is_answered_in_its_place(start: Start) -> None:
    node = await start()
    client = await node.connect()
    client.send((LONG, 4), LIST, (LONG, 4), LIST)
    answers = [await client.receive() for _ in range(4)]
    assert [number for number, _ in answers] == [0, 1, 2, 3]
    assert {answer.throttle_time_ms for _, answer in answers} == {7}
    assert node.limits.requests.used == 0


async def test_a_long_request_that_is_cut_closes_the_connection_once_others_are_answered(
    start: Start,
) -> None:
    node = await start()
    client = await node.connect()
    frame = client.frame(LONG, 4)
    body = frame[4:-3]
    client.send(LIST)
    client.writer.write(len(body).to_bytes(4) + body)
    assert (await client.receive())[1].throttle_time_ms == 7
    with pytest.raises((EOFError, ConnectionError)):
        await client.receive()


async def test_a_long_answer_of_a_coroutine_is_written_over_many_turns(start: Start) -> None:
    node = await start()
    groups = [list_groups.Group(group_id=f"{number}") for number in range(COUNT)]
    answer = list_groups.ListGroupsResponse(groups=groups)

    async def handle(_: Call) -> list_groups.ListGroupsResponse:
        return answer

    node.dispatcher._handlers[16] = handle
    short = request_frame(16, 4, 7, "test", encode(LIST[0], 4))
    parked = node.dispatcher.dispatch(short, SomePeer())
    assert type(parked) is Parked
    assert await resolved(parked) >= COUNT // TURN_ELEMENTS
    rendered = dispatch.render(parked.route, 7, parked.answer)
    assert rendered == dispatch.render(parked.route, 7, answer)


async def test_an_answer_that_cannot_be_written_closes_the_connection(start: Start) -> None:
    node = await start()

    async def handle(_: Call) -> list_groups.ListGroupsResponse:
        return list_groups.ListGroupsResponse(throttle_time_ms=1 << 40)

    node.dispatcher._handlers[16] = handle
    short = request_frame(16, 4, 7, "test", encode(LIST[0], 4))
    parked = node.dispatcher.dispatch(short, SomePeer())
    assert type(parked) is Parked
    await resolved(parked)
    with pytest.raises(CorruptRequest):
        dispatch.render(parked.route, 7, parked.answer)
