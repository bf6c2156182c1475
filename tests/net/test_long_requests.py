"""Long requests are read, and long answers written, over many turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from barnabas.broker.handlers.call import Call, PendingResponse
from barnabas.broker.net import dispatch
from barnabas.broker.net.dispatch import LONG_BYTES
from barnabas.broker.net.request_order import QUERIES, WAITS_FOR_OTHERS
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.compiler import encode, request_decoder_in_turns
from barnabas.protocol.codec.wire import TURN_ELEMENTS
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.frame import request_frame
from barnabas.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    describe_client_quotas,
    describe_configs,
    describe_delegation_token,
    describe_user_scram_credentials,
    find_coordinator,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    offset_commit,
)
from tests.handlers.peer import SomePeer
from tests.net.client import RawClient, until
from tests.net.conftest import ListeningNode, Start

LIST = (list_groups.ListGroupsRequest(), 2)
COUNT = 20 * TURN_ELEMENTS
LONG = list_groups.ListGroupsRequest(states_filter=["x"] * COUNT)


def a_long_frame() -> bytes:
    body = encode(LONG, 4)
    assert len(body) > LONG_BYTES
    return request_frame(16, 4, 7, "test", body)


async def resolved(*pending: Any) -> int:
    """After how many turns of the loop all of them are."""
    turns = 0
    while not all(type(one) is PendingResponse and one.is_resolved for one in pending):
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_a_long_request_is_read_over_many_turns(start: Start) -> None:
    node = await start()
    pending = node.dispatcher.dispatch(a_long_frame(), SomePeer())
    assert type(pending) is PendingResponse
    assert not pending.allowed_behind
    assert node.toys.seen == []
    assert await resolved(pending) >= COUNT // TURN_ELEMENTS
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
    pending = [node.dispatcher.dispatch(a_long_frame(), SomePeer()) for _ in range(3)]
    await resolved(*pending)
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
    pending = node.dispatcher.dispatch(short, SomePeer())
    assert type(pending) is PendingResponse
    assert await resolved(pending) >= COUNT // TURN_ELEMENTS
    rendered = dispatch.response_frame(pending.route, 7, pending.answer)
    assert rendered == dispatch.response_frame(pending.route, 7, answer)


async def test_an_answer_that_cannot_be_written_closes_the_connection(start: Start) -> None:
    node = await start()

    async def handle(_: Call) -> list_groups.ListGroupsResponse:
        return list_groups.ListGroupsResponse(throttle_time_ms=1 << 40)

    node.dispatcher._handlers[16] = handle
    short = request_frame(16, 4, 7, "test", encode(LIST[0], 4))
    pending = node.dispatcher.dispatch(short, SomePeer())
    assert type(pending) is PendingResponse
    await resolved(pending)
    with pytest.raises(CorruptRequest):
        dispatch.response_frame(pending.route, 7, pending.answer)


LONG_NAMES = [f"{number:04}" * 50 for number in range(1_000)]
DESCRIBE = (
    describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.Resource(resource_type=2, resource_name=name) for name in LONG_NAMES
        ]
    ),
    4,
)
DELETE = (delete_groups.DeleteGroupsRequest(groups_names=LONG_NAMES), 2)


class Held:
    """A handler that waits in the midst of its work until the test lets it go on."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[Call] = []
        self.ended: list[str] = []
        self.may_go_on = asyncio.Event()

    async def handle(self, call: Call) -> Any:
        self.calls.append(call)
        try:
            await self.may_go_on.wait()
        except asyncio.CancelledError:
            self.ended.append("stopped")
            raise
        self.ended.append("done")
        return self.answer


async def is_under_way(node: ListeningNode, client: RawClient, message: Any, version: int) -> None:
    """A request is sent, and its task has begun."""
    client.send((message, version))
    await until(lambda: len(node.dispatcher._running) == 1 and node.limits.requests.used > 0)
    await asyncio.sleep(0)


def is_over(node: ListeningNode) -> bool:
    return not node.dispatcher._running and not node.limits.requests.used


async def test_a_long_request_of_a_peer_that_is_gone_is_forgotten(start: Start) -> None:
    node = await start()
    async with node.dispatcher._long_request_lock:
        for _ in range(3):
            client = await node.connect()
            await is_under_way(node, client, LONG, 4)
            await client.close()
            await until(lambda: is_over(node))
    client = await node.connect()
    assert (await client.ask(LONG, 4)).throttle_time_ms == 7
    assert node.toys.seen == ["list"]


async def test_a_long_request_whose_peer_goes_before_its_task_has_begun_is_forgotten(
    start: Start,
) -> None:
    node = await start()
    pending = node.dispatcher.dispatch(a_long_frame(), SomePeer())
    assert type(pending) is PendingResponse
    assert pending.on_drop is not None
    task = pending.on_drop()
    assert task is not None
    await asyncio.wait([task])
    assert task.cancelled()
    assert node.toys.seen == []


async def test_a_long_question_is_given_up_when_its_peer_is_gone(start: Start) -> None:
    node = await start()
    held = Held(list_groups.ListGroupsResponse())
    node.dispatcher._handlers[16] = held.handle
    client = await node.connect()
    client.send((LONG, 4))
    await until(lambda: bool(held.calls))
    await client.close()
    await until(lambda: is_over(node))
    assert held.ended == ["stopped"]


async def test_a_long_change_of_a_peer_that_is_gone_is_done_to_its_end_and_held_until_then(
    start: Start,
) -> None:
    node = await start()
    held = Held(delete_groups.DeleteGroupsResponse())
    node.dispatcher.register({42: held.handle})
    client = await node.connect()
    client.send(DELETE)
    await until(lambda: bool(held.calls))
    await client.close()
    await until(lambda: not node.listener.connections)
    assert node.limits.requests.used > LONG_BYTES
    held.may_go_on.set()
    await until(lambda: is_over(node))
    assert held.ended == ["done"]


def a_commit(offset: int, partitions: int) -> tuple[offset_commit.OffsetCommitRequest, int]:
    topics = [
        offset_commit.Topic(
            name="t",
            partitions=[
                offset_commit.Partition(partition_index=index, committed_offset=offset)
                for index in range(partitions)
            ],
        )
    ]
    return offset_commit.OffsetCommitRequest(group_id="g", topics=topics), 7


@pytest.mark.parametrize("is_read", [False, True])
async def test_a_long_commit_of_a_closed_connection_has_no_effect_after_a_newer_one(
    start: Start, is_read: bool
) -> None:
    """Once closed, whether it still waited for the lane or was being checked."""
    node = await start()
    committed: list[int] = []
    checked = Held(None)

    async def commit_in_turns(call: Call) -> offset_commit.OffsetCommitResponse:
        await checked.handle(call)
        return commit(call)

    def commit(call: Call) -> offset_commit.OffsetCommitResponse:
        committed.append(call.request.topics[0].partitions[0].committed_offset)
        return offset_commit.OffsetCommitResponse()

    node.dispatcher.register({8: lambda call: (commit_in_turns if call.is_long else commit)(call)})
    former, latter = await node.connect(), await node.connect()
    await node.dispatcher._long_request_lock.acquire()
    await is_under_way(node, former, *a_commit(100, 10_000))
    if is_read:
        node.dispatcher._long_request_lock.release()
        await until(lambda: bool(checked.calls))
        await node.dispatcher._long_request_lock.acquire()
    await former.close()
    await until(lambda: len(node.listener.connections) == 1)
    await latter.ask(*a_commit(200, 1))
    node.dispatcher._long_request_lock.release()
    checked.may_go_on.set()
    await until(lambda: is_over(node))
    assert committed == [200]


USERS = describe_user_scram_credentials
TOKENS = describe_delegation_token
REASSIGNMENTS = list_partition_reassignments
WAITING_QUESTIONS: dict[int, tuple[tuple[Any, int], Any]] = {
    ApiKey.LIST_OFFSETS: (
        (
            list_offsets.ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=[list_offsets.Topic(name=name, partitions=[]) for name in LONG_NAMES],
            ),
            8,
        ),
        list_offsets.ListOffsetsResponse(throttle_time_ms=0, topics=[]),
    ),
    ApiKey.FIND_COORDINATOR: (
        (find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=LONG_NAMES), 6),
        find_coordinator.FindCoordinatorResponse(throttle_time_ms=0, coordinators=[]),
    ),
    ApiKey.DESCRIBE_CONFIGS: (DESCRIBE, describe_configs.DescribeConfigsResponse()),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (
        (
            TOKENS.DescribeDelegationTokenRequest(
                owners=[
                    TOKENS.Owner(principal_type="User", principal_name=name) for name in LONG_NAMES
                ]
            ),
            3,
        ),
        TOKENS.DescribeDelegationTokenResponse(error_code=0, tokens=[], throttle_time_ms=0),
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (
        (
            REASSIGNMENTS.ListPartitionReassignmentsRequest(
                topics=[
                    REASSIGNMENTS.Topic(name=name, partition_indexes=[0]) for name in LONG_NAMES
                ]
            ),
            0,
        ),
        REASSIGNMENTS.ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=0, error_message=None, topics=[]
        ),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (
        (
            describe_client_quotas.DescribeClientQuotasRequest(
                components=[
                    describe_client_quotas.Component(entity_type="user", match_type=0, match=name)
                    for name in LONG_NAMES
                ],
                strict=False,
            ),
            1,
        ),
        describe_client_quotas.DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=0, error_message=None, entries=[]
        ),
    ),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (
        (
            USERS.DescribeUserScramCredentialsRequest(
                users=[USERS.User(name=name) for name in LONG_NAMES]
            ),
            0,
        ),
        USERS.DescribeUserScramCredentialsResponse(
            throttle_time_ms=0, error_code=0, error_message=None, results=[]
        ),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        (
            consumer_group_describe.ConsumerGroupDescribeRequest(
                group_ids=LONG_NAMES, include_authorized_operations=False
            ),
            1,
        ),
        consumer_group_describe.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[]),
    ),
}


def test_every_question_that_waits_for_others_is_asked_here() -> None:
    assert WAITING_QUESTIONS.keys() == WAITS_FOR_OTHERS
    assert WAITS_FOR_OTHERS < QUERIES


@pytest.mark.parametrize("key", sorted(WAITING_QUESTIONS), ids=lambda key: ApiKey(key).name)
async def test_a_question_that_waits_for_zookeeper_holds_up_no_other_long_request(
    start: Start, key: int
) -> None:
    question, answer = WAITING_QUESTIONS[key]
    node = await start()
    held = Held(answer)
    node.dispatcher.register({key: held.handle})
    asking, listing = await node.connect(), await node.connect()
    asking.send(question)
    await until(lambda: bool(held.calls))
    assert (await listing.ask(LONG, 4)).throttle_time_ms == 7
    assert held.ended == []
    held.may_go_on.set()
    await asking.receive()


async def test_of_long_questions_that_wait_for_others_one_of_each_api_is_in_memory(
    start: Start,
) -> None:
    node = await start()
    held = Held(describe_configs.DescribeConfigsResponse())
    node.dispatcher.register({32: held.handle})
    first, second, other = [await node.connect() for _ in range(3)]
    first.send(DESCRIBE)
    await until(lambda: bool(held.calls))
    second.send(DESCRIBE)
    await until(lambda: len(node.dispatcher._running) == 2)
    await other.ask(LONG, 4)  # it had the lane meanwhile, and nobody waits for that any more
    assert len(held.calls) == 1
    held.may_go_on.set()
    await first.receive()
    await second.receive()
    assert len(held.calls) == 2
