"""Answers in order, frames in pieces, peers that leave: over real sockets on both loops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from barnabas.broker.handlers.call import Call, PendingResponse
from barnabas.broker.net.connection import Connection
from barnabas.broker.net.limits import PENDING_RESPONSES_MAX
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import (
    api_versions,
    describe_groups,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    leave_group,
    list_groups,
    write_txn_markers,
)
from tests.net.client import until
from tests.net.conftest import Start

LIST = (list_groups.ListGroupsRequest(), 2)


def beat(group: str, version: int = 4) -> tuple[heartbeat.HeartbeatRequest, int]:
    return heartbeat.HeartbeatRequest(group_id=group), version


async def test_a_request_is_answered_in_its_version(start: Start) -> None:
    client = await (await start()).connect()
    for version in range(5):
        answer = await client.ask(list_groups.ListGroupsRequest(), version)
        assert answer.throttle_time_ms == (7 if version else 0)


async def test_answers_leave_in_order_of_arrival_whoever_is_ready_first(start: Start) -> None:
    node = await start()
    client = await node.connect()
    client.send(beat("a"), beat("b"), beat("c"), LIST)
    await until(lambda: len(node.toys.seen) >= 3)
    other = await node.connect()
    for group, code in (("b", 27), ("c", 22), ("a", 25)):
        node.toys.resolve(group, code)
        await other.ask(*LIST)
    answers = [await client.receive() for _ in range(4)]
    assert [number for number, _ in answers] == [0, 1, 2, 3]
    assert [getattr(answer, "error_code", None) for _, answer in answers] == [25, 27, 22, 0]


async def test_a_frame_may_come_byte_by_byte(start: Start) -> None:
    node = await start()
    client = await node.connect()
    frames = client.frame(*LIST) + client.frame(*beat("slow"))
    for byte in frames:
        client.writer.write(bytes([byte]))
        await client.writer.drain()
        await asyncio.sleep(0)
    await until(lambda: "slow" in node.toys.seen)
    node.toys.resolve("slow")
    assert [(await client.receive())[0] for _ in range(2)] == [0, 1]


async def test_a_large_frame_is_put_together_from_its_pieces(start: Start) -> None:
    node = await start()
    client = await node.connect()
    group = "g" * 30_000
    client.send(beat(group), beat("short"), beat(group + "2"))
    await client.writer.drain()
    await until(lambda: len(node.toys.seen) >= 3)
    assert node.toys.seen == [group, "short", group + "2"]


async def test_no_more_is_served_than_may_be_parked_and_the_rest_later(start: Start) -> None:
    node = await start()
    client = await node.connect()
    client.send(*(beat(f"g{i}") for i in range(PENDING_RESPONSES_MAX + 10)))
    await client.writer.drain()
    await until(lambda: len(node.toys.seen) >= PENDING_RESPONSES_MAX)
    await (await node.connect()).ask(*LIST)
    assert len(node.toys.seen) == PENDING_RESPONSES_MAX + 1
    for group in list(node.toys.pending):
        node.toys.resolve(group)
    await until(lambda: len(node.toys.pending) >= PENDING_RESPONSES_MAX + 10)
    for group in node.toys.pending:
        node.toys.resolve(group)
    for number in range(PENDING_RESPONSES_MAX + 10):
        assert (await client.receive())[0] == number


async def test_whoever_waits_for_a_peer_that_left_is_told(start: Start) -> None:
    node = await start()
    client = await node.connect()
    client.send(beat("gone"))
    await client.writer.drain()
    await until(lambda: bool(node.toys.seen))
    await client.close()
    await until(lambda: not node.listener.connections)
    assert node.toys.dropped == ["gone"]
    node.toys.resolve("gone")
    assert node.limits.requests.used == 0


async def test_nothing_is_served_before_the_listener_serves(start: Start) -> None:
    node = await start(serve=False)
    client = await node.connect()
    client.send(LIST)
    await client.writer.drain()
    await until(lambda: bool(node.listener.connections))
    assert node.toys.seen == []
    node.listener.serve()
    assert (await client.receive())[1].throttle_time_ms == 7


async def test_a_handler_may_be_a_coroutine_and_still_answers_in_order(start: Start) -> None:
    node = await start()
    gate = asyncio.Event()

    async def describe(call: Call) -> describe_groups.DescribeGroupsResponse:
        async with asyncio.timeout(60):
            await gate.wait()
        return describe_groups.DescribeGroupsResponse(throttle_time_ms=3)

    node.dispatcher.register({ApiKey.DESCRIBE_GROUPS: describe})
    client = await node.connect()
    client.send((describe_groups.DescribeGroupsRequest(), 5), LIST)
    await (await node.connect()).ask(*LIST)
    gate.set()
    assert [(await client.receive())[1].throttle_time_ms for _ in range(2)] == [3, 7]


class CompiledCoroutine(Coroutine[Any, Any, Any]):
    """What a compiled ``async def`` gives: to be awaited, and of a type of its own."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._coroutine.__await__()


async def test_a_coroutine_of_compiled_code_is_awaited_too(start: Start) -> None:
    node = await start()

    async def described() -> describe_groups.DescribeGroupsResponse:
        await asyncio.sleep(0)
        return describe_groups.DescribeGroupsResponse(throttle_time_ms=3)

    node.dispatcher.register({ApiKey.DESCRIBE_GROUPS: lambda _: CompiledCoroutine(described())})
    client = await node.connect()
    client.send((describe_groups.DescribeGroupsRequest(), 5), LIST)
    assert [(await client.receive())[1].throttle_time_ms for _ in range(2)] == [3, 7]


async def test_a_stopping_node_waits_for_no_handler(start: Start) -> None:
    node = await start()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def describe(call: Call) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    node.dispatcher.register({ApiKey.DESCRIBE_GROUPS: describe})
    client = await node.connect()
    client.send((describe_groups.DescribeGroupsRequest(), 5))
    await begun.wait()
    node.dispatcher.stop()
    await ended.wait()


async def test_a_refusal_becomes_the_code_of_the_answer(start: Start) -> None:
    node = await start()

    def find(call: Call) -> None:
        raise Refused(ErrorCode.INVALID_REQUEST, "not so")

    node.dispatcher.register({ApiKey.FIND_COORDINATOR: find})
    client = await node.connect()
    answer = await client.ask(find_coordinator.FindCoordinatorRequest(), 2)
    assert (answer.error_code, answer.error_message) == (42, "not so")
    client.send((find_coordinator.FindCoordinatorRequest(), 4))
    assert await client.is_closed()


async def test_a_failing_handler_costs_one_traceback_and_nobody_elses_connection(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start()

    def leave(call: Call) -> None:
        raise ValueError("a bug")

    async def describe(call: Call) -> None:
        raise ValueError("another")

    node.dispatcher.register({ApiKey.LEAVE_GROUP: leave, ApiKey.DESCRIBE_GROUPS: describe})
    client, other = await node.connect(), await node.connect()
    answer = await client.ask(leave_group.LeaveGroupRequest(), 1)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    client.send((describe_groups.DescribeGroupsRequest(), 1))
    assert await client.is_closed()
    assert (await other.ask(*LIST)).throttle_time_ms == 7
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 2


@pytest.mark.parametrize("version", [5, 99, 32767])
async def test_api_versions_in_a_version_to_come_is_answered_in_version_0(
    start: Start, version: int
) -> None:
    node = await start()
    node.dispatcher.register({ApiKey.API_VERSIONS: lambda call: api_versions.ApiVersionsResponse()})
    client = await node.connect()
    client.writer.write(bytes.fromhex(f"0000000e 0012 {version:04x} 00000005 0003 616263 ff"))
    frame = await client.frame_in()
    assert frame.hex(" ") == "00 00 00 05 00 23 00 00 00 01 00 12 00 00 00 04"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("00000000", id="empty frame"),
        pytest.param("ffffffff", id="negative length"),
        pytest.param("7fffffff", id="huge length"),
        pytest.param("474554202f20485454502f312e31", id="HTTP"),
        pytest.param("16030100c8010000c40303", id="TLS"),
        pytest.param("00000008 000c 0004 00000001", id="no client id"),
        pytest.param("0000000a 0fff 0000 00000001 0000", id="unknown api"),
        pytest.param("0000000a 000c 0063 00000001 0000", id="unknown version"),
        pytest.param("0000000a 0003 0000 00000001 0000", id="api without a handler"),
        pytest.param("0000000a 0004 0000 00000001 0000", id="control api on a client listener"),
        pytest.param("0000000a 000c 0000 00000001 7fff", id="client id past the end"),
        pytest.param("0000000e 000c 0000 00000001 0000 7fffffff", id="body past the end"),
    ],
)
async def test_what_is_no_request_of_ours_closes_the_connection_with_one_line(
    start: Start, caplog: pytest.LogCaptureFixture, data: str
) -> None:
    caplog.set_level(logging.INFO)
    node = await start()
    for _ in range(2):
        client = await node.connect()
        client.writer.write(bytes.fromhex(data))
        assert await client.is_closed()
    assert len(caplog.records) == 1
    assert "closed connection host=127.0.0.1" in caplog.records[0].message


async def test_what_was_answered_before_the_garbage_is_still_written(start: Start) -> None:
    node = await start()
    client = await node.connect()
    client.writer.write(client.frame(*LIST) + b"\xff" * 20)
    assert (await client.receive())[0] == 0
    assert await client.is_closed()


async def test_nothing_behind_a_fetch_is_served_while_it_waits(start: Start) -> None:
    node = await start()
    pending = PendingResponse()
    node.dispatcher.register({ApiKey.FETCH: lambda call: pending})
    client = await node.connect()
    client.send((fetch.FetchRequest(), 11), LIST)
    other = await node.connect()
    for _ in range(3):
        await other.ask(*LIST)
    assert node.toys.seen == ["list"] * 3
    pending.respond(fetch.FetchResponse(session_id=5))
    assert (await client.receive())[1].session_id == 5
    assert (await client.receive())[0] == 1


async def test_a_peer_that_left_is_known_before_what_it_sent_is_served(start: Start) -> None:
    """T8.22: a late end, or marker, would end the producer's next transaction."""
    node = await start()
    waiting = PendingResponse()
    began: list[Call] = []
    ended: list[bool] = []

    def begin(call: Call) -> PendingResponse:
        began.append(call)
        return waiting

    def end(call: Call) -> None:
        ended.append(call.peer.has_left())

    node.dispatcher.register({ApiKey.WRITE_TXN_MARKERS: begin, ApiKey.END_TXN: end})
    requests = (
        (end_txn.EndTxnRequest(transactional_id="mine"), 3),
        (write_txn_markers.WriteTxnMarkersRequest(), 1),
        (end_txn.EndTxnRequest(transactional_id="mine"), 3),
        (end_txn.EndTxnRequest(transactional_id="mine"), 3),
    )
    client = await node.connect()
    client.send(*requests)
    await until(lambda: bool(began))
    assert ended == [False]
    await client.close()
    waiting.respond(write_txn_markers.WriteTxnMarkersResponse())
    await until(lambda: not node.listener.connections)
    assert ended in ([False], [False, True], [False, True, True])


async def test_records_of_a_fetch_arrive_whole(start: Start) -> None:
    node = await start()
    records = bytes(range(256)) * 20_000
    partition = fetch.PartitionResult(partition_index=3, records=memoryview(records))
    topic = fetch.TopicResult(topic="t", partitions=[partition])
    node.dispatcher.register({ApiKey.FETCH: lambda call: fetch.FetchResponse(responses=[topic])})
    client = await node.connect()
    client.send((fetch.FetchRequest(), 4), (fetch.FetchRequest(), 12), LIST)
    for _ in range(2):
        answer = (await client.receive())[1]
        assert bytes(answer.responses[0].partitions[0].records) == records
    assert (await client.receive())[0] == 2
    assert node.limits.answers.used == 0


async def test_an_answer_of_none_sends_nothing(start: Start) -> None:
    node = await start()
    pending = PendingResponse()
    node.dispatcher.register(
        {ApiKey.LEAVE_GROUP: lambda call: None, ApiKey.DESCRIBE_GROUPS: lambda call: pending}
    )
    client = await node.connect()
    client.send(
        (leave_group.LeaveGroupRequest(), 0), (describe_groups.DescribeGroupsRequest(), 0), LIST
    )
    await (await node.connect()).ask(*LIST)
    pending.respond(None)
    assert (await client.receive())[0] == 2


async def test_a_handler_that_closes_has_its_answer_written_first(start: Start) -> None:
    node = await start()

    def leave(call: Call) -> leave_group.LeaveGroupResponse:
        call.peer.close()
        return leave_group.LeaveGroupResponse(error_code=25)

    node.dispatcher.register({ApiKey.LEAVE_GROUP: leave})
    client = await node.connect()
    client.send((leave_group.LeaveGroupRequest(), 0), LIST)
    assert (await client.receive())[1].error_code == 25
    assert await client.is_closed()
    assert node.toys.seen == []


async def test_a_closing_listener_writes_what_is_answered(start: Start) -> None:
    node = await start()
    client = await node.connect()
    client.send(beat("a"), beat("b"))
    await client.writer.drain()
    await until(lambda: len(node.toys.seen) >= 2)
    node.toys.resolve("a")
    await node.listener.close()
    assert (await client.receive())[0] == 0
    assert await client.is_closed()
    assert node.toys.dropped == ["b"]


async def test_small_packets_are_not_delayed(start: Start) -> None:
    import socket

    node = await start()
    client = await node.connect()
    await client.ask(*LIST)
    connection: Connection = next(iter(node.listener.connections))
    plug = connection._transport.get_extra_info("socket")
    assert plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
