"""Which requests of one connection are under way together: every pair, generated from the table."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from barnabas.broker.handlers.call import Call, PendingResponse
from barnabas.broker.net.request_order import (
    ALL_KEYS,
    CLASSES,
    NO_KEYS,
    allowed_behind,
    intersection,
)
from barnabas.protocol import api
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import join_group, list_groups
from tests.net.client import RawClient, until
from tests.net.conftest import ListeningNode, Start

SERVED_AT_ONCE = {ApiKey.LIST_GROUPS}
"""By the toys of conftest: what other connections ask to see that a turn has passed."""
REPRESENTATIVES = [each.keys[0] for each in CLASSES]
TOGETHER = {
    (ApiKey.PRODUCE, ApiKey.PRODUCE),
    (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_COMMIT),
    (ApiKey.OFFSET_COMMIT, ApiKey.HEARTBEAT),
    (ApiKey.HEARTBEAT, ApiKey.HEARTBEAT),
    *(
        (first, second)
        for first in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
        for second in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP)
    ),
}
"""What the issue allows, written out: the table must say no more and no less."""


class Waiting:
    """Handlers that note what has begun, and answer when the test says so."""

    def __init__(self, node: ListeningNode) -> None:
        self.begun: list[int] = []
        self.pending: list[PendingResponse] = []
        self.node = node
        handlers = node.dispatcher._handlers
        for each in CLASSES:
            for key in each.keys:
                if key not in SERVED_AT_ONCE:
                    handlers.pop(key, None)
                    node.dispatcher.register({key: self.park})

    def park(self, call: Call) -> PendingResponse:
        self.begun.append(call.key)
        self.pending.append(PendingResponse())
        return self.pending[-1]

    async def turn(self) -> None:
        """Let whatever can begin do so."""
        for _ in range(2):
            await (await self.node.connect()).ask(list_groups.ListGroupsRequest(), 2)

    def answer(self, place: int) -> None:
        spec = api.lookup(self.begun[place])
        assert spec is not None
        self.pending[place].respond(spec.response())


def frame_of(client: RawClient, key: ApiKey, version: int | None = None, **values: Any) -> bytes:
    spec = api.lookup(key)
    assert spec is not None
    highest = spec.versions[1] if spec.advertised is None else spec.advertised
    return client.frame(spec.request(**values), highest if version is None else version)


@pytest.mark.parametrize("second", REPRESENTATIVES, ids=lambda key: key.name)
@pytest.mark.parametrize("first", REPRESENTATIVES, ids=lambda key: key.name)
async def test_a_request_starts_as_the_table_says_behind_one_that_waits(
    start: Start, first: ApiKey, second: ApiKey
) -> None:
    node = await start()
    waiting = Waiting(node)
    client = await node.connect()
    client.writer.write(frame_of(client, first) + frame_of(client, second))
    await until(lambda: len(waiting.begun) >= 1)
    await waiting.turn()
    is_together = (first, second) in TOGETHER
    assert waiting.begun == ([first, second] if is_together else [first])
    waiting.answer(0)
    await until(lambda: len(waiting.begun) == 2)
    waiting.answer(1)
    assert [(await client.receive())[0] for _ in range(2)] == [0, 1]


def test_every_api_of_clients_has_its_place_in_the_table() -> None:
    placed = [key for each in CLASSES for key in each.keys]
    assert len(placed) == len(set(placed))
    assert set(ApiKey) - set(placed) == api.INTER_BROKER


def test_the_table_says_what_was_decided_and_no_more() -> None:
    said = {
        (first, second)
        for each in CLASSES
        for first in each.keys
        for second in ApiKey
        if second in each.allowed_behind
    }
    assert said == TOGETHER


def test_nothing_passes_what_zookeeper_is_asked_for() -> None:
    assert allowed_behind(ApiKey.OFFSET_COMMIT, 0) is NO_KEYS
    assert allowed_behind(ApiKey.OFFSET_COMMIT, 1) != NO_KEYS
    assert allowed_behind(4711, 0) == NO_KEYS


def test_what_may_pass_several_is_what_may_pass_each() -> None:
    assert intersection([]) is ALL_KEYS
    assert intersection([frozenset({1, 2}), frozenset({2, 3})]) == frozenset({2})
    assert intersection([frozenset({1, 2}), NO_KEYS]) == NO_KEYS


@pytest.mark.parametrize("key", REPRESENTATIVES, ids=lambda key: key.name)
async def test_what_is_not_in_its_order_yet_holds_back_its_own_kind(
    start: Start, key: ApiKey
) -> None:
    node = await start()
    waiting = Waiting(node)
    gate, begun = asyncio.Event(), []
    spec = api.lookup(key)
    assert spec is not None

    async def slow(call: Call) -> Any:
        begun.append(call.key)
        await gate.wait()
        return spec.response()

    node.dispatcher._handlers[key] = slow
    client = await node.connect()
    client.writer.write(frame_of(client, key) + frame_of(client, key))
    await until(lambda: len(begun) == 1)
    await waiting.turn()
    assert len(begun) == 1
    gate.set()
    assert [(await client.receive())[0] for _ in range(2)] == [0, 1]
    assert len(begun) == 2


async def test_what_waits_begins_when_an_answer_in_the_middle_was_all_that_held_it(
    start: Start,
) -> None:
    node = await start()
    waiting = Waiting(node)
    client = await node.connect()
    client.writer.write(
        frame_of(client, ApiKey.JOIN_GROUP, member_id="a")
        + frame_of(client, ApiKey.LEAVE_GROUP)
        + frame_of(client, ApiKey.JOIN_GROUP, member_id="b")
    )
    await until(lambda: len(waiting.begun) >= 2)
    await waiting.turn()
    assert waiting.begun == [ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP]
    waiting.answer(1)
    await until(lambda: len(waiting.begun) == 3)
    waiting.answer(2)
    waiting.answer(0)
    assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("names", [{"member_id": "m"}, {"group_instance_id": "i"}])
@pytest.mark.parametrize("second", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
async def test_a_member_that_waits_to_join_asks_again_only_after_its_answer(
    start: Start, names: dict[str, Any], second: ApiKey
) -> None:
    node = await start()
    waiting = Waiting(node)
    client = await node.connect()
    first = frame_of(client, ApiKey.JOIN_GROUP, group_id="g", **names)
    again = frame_of(client, second, group_id="g", **names)
    others = frame_of(client, second, group_id="other", **names)
    client.writer.write(first + again + others)
    await until(lambda: len(waiting.begun) >= 1)
    await waiting.turn()
    assert waiting.begun == [ApiKey.JOIN_GROUP]
    waiting.answer(0)
    await until(lambda: len(waiting.begun) == 3)
    waiting.answer(1)
    waiting.answer(2)
    assert [(await client.receive())[0] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("size", [1_000, 300_000])
async def test_a_request_that_is_held_back_is_served_whole_however_large(
    start: Start, size: int
) -> None:
    node = await start()
    waiting = Waiting(node)
    seen: list[bytes] = []

    def park(call: Call) -> PendingResponse:
        seen.append(call.request.protocols[0].metadata)
        return waiting.park(call)

    node.dispatcher._handlers[ApiKey.JOIN_GROUP] = park
    client = await node.connect()
    told = [bytes([place]) * size for place in range(4)]
    for metadata in told:
        protocols = [join_group.Protocol(name="range", metadata=metadata)]
        client.writer.write(
            frame_of(client, ApiKey.JOIN_GROUP, member_id="m", protocols=protocols)
            + frame_of(client, ApiKey.LEAVE_GROUP)
        )
    for place in range(8):
        await until(lambda place=place: len(waiting.begun) > place)  # type: ignore[misc]
        await waiting.turn()
        waiting.answer(place)
    assert [(await client.receive())[0] for _ in range(8)] == list(range(8))
    assert seen == told
    assert waiting.begun == [ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP] * 4


async def test_the_same_member_of_another_group_is_another_member(start: Start) -> None:
    node = await start()
    waiting = Waiting(node)
    client = await node.connect()
    for group in ("g", "h"):
        client.writer.write(frame_of(client, ApiKey.JOIN_GROUP, group_id=group, member_id="m"))
    await until(lambda: len(waiting.begun) == 2)


async def test_nothing_behind_an_error_that_closes_is_served(start: Start) -> None:
    """A producer without acknowledgements is told of errors by the end of its connection."""
    node = await start()
    waiting = Waiting(node)
    gate = asyncio.Event()

    async def fails(call: Call) -> None:
        await gate.wait()
        call.peer.close()

    node.dispatcher._handlers[ApiKey.PRODUCE] = fails
    client = await node.connect()
    client.writer.write(
        frame_of(client, ApiKey.PRODUCE) + frame_of(client, ApiKey.METADATA, version=1)
    )
    await waiting.turn()
    gate.set()
    assert await client.is_closed()
    assert waiting.begun == []


def test_orders_between_nodes_wait_for_no_other() -> None:
    for key in api.INTER_BROKER:
        assert set(allowed_behind(key, 0)) == set(api.INTER_BROKER)
