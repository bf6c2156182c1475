"""How little strangers can cost: the byte budget, the crowd, idle, slow and hostile peers."""

from __future__ import annotations

import asyncio
import random
import resource
import struct
from pathlib import Path
from typing import cast

import pytest

from barnabas.broker.handlers.call import Call
from barnabas.broker.net import connection_timeouts, listener
from barnabas.broker.net.connection import Connection
from barnabas.broker.net.limits import (
    SMALL_FRAME_BYTES_MAX,
    SMALL_READ_BYTES,
    TINY_BYTES,
    WRITE_BUFFER_MAX,
    MemoryPool,
)
from barnabas.broker.net.small_reads import SmallReceiver
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.protocol.api import ApiKey
from barnabas.protocol.messages import fetch, heartbeat, list_groups
from tests.harness.compiled_code import interpreted_only
from tests.net.client import RawClient, until
from tests.net.conftest import ListeningNode, Start

LIST = (list_groups.ListGroupsRequest(), 2)
MIB = 1 << 20
READ_BYTES = 256 << 10
"""What an ordinary read brings at most."""


class Someone(Connection):
    def __init__(self, pool: MemoryPool) -> None:
        self.pool = pool
        self.resumed = 0

    def resume(self) -> None:
        self.resumed += 1


@interpreted_only
def test_whoever_waited_longest_is_resumed_first_and_only_while_there_is_room() -> None:
    pool = MemoryPool(100)
    favoured, first, second = (Someone(pool) for _ in range(3))
    pool.take(250)
    assert [pool.must_wait(one, 0) for one in (favoured, first, second)] == [False, True, True]
    pool.give(100)
    assert (first.resumed, second.resumed) == (0, 0)
    pool.give(60)
    assert (first.resumed, second.resumed) == (1, 1)


@interpreted_only
def test_somebody_may_always_go_on_though_the_budget_is_spent() -> None:
    pool = MemoryPool(100)
    favoured, first, second = (Someone(pool) for _ in range(3))
    pool.take(250)
    for one in (favoured, first, second):
        pool.must_wait(one, 0)
    pool.leave(favoured)
    assert (first.resumed, second.resumed) == (1, 0)
    assert not pool.must_wait(first, 0)
    pool.leave(second)
    pool.leave(first)
    assert not pool.must_wait(second, 0)


@interpreted_only
def test_a_quarter_is_kept_for_small_frames() -> None:
    pool = MemoryPool(100)
    large, second, small = (Someone(pool) for _ in range(3))
    pool.take(90)
    assert [pool.must_wait(one, SMALL_FRAME_BYTES_MAX + 1) for one in (large, second)] == [
        False,
        True,
    ]
    assert not pool.must_wait(small, SMALL_FRAME_BYTES_MAX)
    pool.take(20)
    assert not pool.must_wait(small, SMALL_FRAME_BYTES_MAX)
    assert pool.must_wait(Someone(pool), SMALL_FRAME_BYTES_MAX)
    pool.give(20)
    assert second.resumed == 0
    pool.give(20)
    assert second.resumed == 1


@interpreted_only
def test_who_has_grown_waits_among_the_large() -> None:
    pool = MemoryPool(100)
    favoured, growing, other = (Someone(pool) for _ in range(3))
    pool.take(200)
    assert not pool.must_wait(favoured, SMALL_FRAME_BYTES_MAX)
    assert pool.must_wait(growing, SMALL_FRAME_BYTES_MAX)
    assert not pool.must_wait(other, SMALL_FRAME_BYTES_MAX + 1)
    assert pool.must_wait(growing, SMALL_FRAME_BYTES_MAX + 1)
    pool.leave(favoured)
    pool.give(110)
    assert growing.resumed == 0


@interpreted_only
def test_who_goes_on_regardless_does_so_until_the_frame_is_whole() -> None:
    pool = MemoryPool(100)
    growing, other = Someone(pool), Someone(pool)
    pool.take(200)
    assert not pool.must_wait(growing, SMALL_FRAME_BYTES_MAX)
    assert pool.must_wait(other, SMALL_FRAME_BYTES_MAX)
    assert not pool.must_wait(growing, SMALL_FRAME_BYTES_MAX + 1)
    assert other.resumed == 0
    pool.leave(growing)
    assert other.resumed == 1


def test_memory_is_scarce_from_one_half_until_a_quarter_and_told_each_time() -> None:
    pool, told = MemoryPool(100), []
    pool.on_scarce.append(lambda: told.append(pool.used))
    for count in (50, 1, 40):
        pool.take(count)
    pool.give(65)
    assert (pool.is_scarce, told) == (True, [51])
    pool.give(1)
    assert not pool.is_scarce
    pool.take(30)
    assert told == [51, 55]


def beginning(size: int, sent: int) -> bytes:
    """The first ``sent`` bytes of a heartbeat frame of ``size`` bytes."""
    head = struct.pack(">ihhih", size, 12, 0, 0, -1)
    return (head + b"g" * sent)[:sent]


async def settled(node: ListeningNode) -> None:
    """Wait until everything sent so far has been read, or will not be."""
    for _ in range(5):
        client = await node.connect()
        await client.ask(*LIST)


async def test_no_more_is_held_than_the_budget_and_one_frame(start: Start) -> None:
    node = await start(settings=NetworkSettings(queued_max_request_bytes=MIB))
    clients = [await node.connect() for _ in range(16)]
    for client in clients:
        client.writer.write(beginning(8 * MIB, 700_000))
    await settled(node)
    assert node.limits.requests.used <= 2 * MIB + 16 * 4 * SMALL_FRAME_BYTES_MAX
    for client in clients:
        await client.close()
    await until(lambda: len(node.listener.connections) <= 5)
    assert node.limits.requests.used == 0


@pytest.mark.parametrize("is_bulk", [False, True])
async def test_half_sent_frames_of_many_are_held_within_the_budget(
    start: Start, is_bulk: bool
) -> None:
    """Whatever one read brings: 2,000 of them once took twice the budget."""
    node = await start(settings=NetworkSettings(queued_max_request_bytes=8 * MIB))
    clients = [await node.connect() for _ in range(100)]
    if is_bulk:
        for client in clients:
            await be_bulk(client)
    most = 0
    for client in clients:
        client.writer.write(beginning(2 * MIB, MIB))
        most = max(most, node.limits.requests.used)
    for _ in range(20):
        await settled(node)
        most = max(most, node.limits.requests.used)
    assert most <= 8 * MIB + 2 * MIB + 100 * (TINY_BYTES + SMALL_READ_BYTES) + 4 * READ_BYTES
    await until(lambda: node.limits.requests.is_scarce)
    fresh = await node.connect()
    assert (await fresh.ask(*LIST)).throttle_time_ms == 7
    for client in (*clients, fresh):
        await client.close()
    await until(lambda: not node.limits.requests.used)
    assert not node.limits.requests.is_scarce


async def test_small_requests_are_served_while_large_ones_have_spent_the_budget(
    start: Start,
) -> None:
    node = await start(settings=NetworkSettings(queued_max_request_bytes=MIB))
    stalling = [await node.connect() for _ in range(20)]
    for client in stalling:
        client.writer.write(beginning(8 * MIB, 200_000))
    await settled(node)
    client = await node.connect()
    client.send((heartbeat.HeartbeatRequest(group_id="g" * 30_000), 0), LIST)
    await until(lambda: "g" * 30_000 in node.toys.pending)
    node.toys.resolve("g" * 30_000)
    assert [(await client.receive())[0] for _ in range(2)] == [0, 1]


async def test_reads_are_ordinary_again_when_memory_is_plentiful(start: Start) -> None:
    node = await start(settings=NetworkSettings(queued_max_request_bytes=4 * MIB))
    client = await node.connect()
    await client.ask(*LIST)
    node.limits.requests.take(3 * MIB)
    [connection] = node.listener.connections
    assert await asks_by(client, connection) is SmallReceiver
    node.limits.requests.give(3 * MIB)
    assert await asks_by(client, connection) is Connection


async def test_many_connections_come_to_read_less_turn_by_turn(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "TURN_CONNECTIONS", 3)
    node = await start(settings=NetworkSettings(queued_max_request_bytes=4 * MIB))
    for _ in range(8):
        await (await node.connect()).ask(*LIST)
    node.limits.requests.take(3 * MIB)
    counts = []
    for _ in range(4):
        protocols = [one._transport.get_protocol() for one in node.listener.connections]
        counts.append(sum(isinstance(one, SmallReceiver) for one in protocols))
        await asyncio.sleep(0)
    assert counts[0] == 3
    assert counts[-1] == 8
    node.limits.requests.give(3 * MIB)


async def be_bulk(client: RawClient) -> None:
    """A large frame that was served leaves its connection to large reads."""
    asked = list_groups.ListGroupsRequest(states_filter=["x" * 1000] * 300)
    assert (await client.ask(asked, 4)).throttle_time_ms == 7


async def asks_by(client: RawClient, connection: Connection) -> type:
    """What stands behind the transport once a request was answered."""
    assert (await client.ask(*LIST)).throttle_time_ms == 7
    return type(connection._transport.get_protocol())


async def test_large_frames_get_through_a_small_budget_one_after_the_other(start: Start) -> None:
    node = await start(settings=NetworkSettings(queued_max_request_bytes=100_000))
    clients = [await node.connect() for _ in range(8)]
    for index, client in enumerate(clients):
        group = chr(ord("a") + index) * 32_000
        requests = [(heartbeat.HeartbeatRequest(group_id=group + str(i)), 0) for i in range(8)]
        client.send(*requests)

    async def answer() -> None:
        told: set[str] = set()
        while len(told) < 64:
            for group in set(node.toys.pending) - told:
                told.add(group)
                node.toys.resolve(group)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(answer())
        for client in clients:
            for number in range(8):
                assert (await client.receive())[0] == number
    assert node.limits.requests.used == 0


async def test_a_spent_budget_leaves_one_request_in_flight_on_each_connection(
    start: Start,
) -> None:
    node = await start(settings=NetworkSettings(queued_max_request_bytes=1000))
    client = await node.connect()
    groups = [letter * 2000 for letter in "abc"]
    client.send(*((heartbeat.HeartbeatRequest(group_id=group), 0) for group in groups))
    await until(lambda: groups[0] in node.toys.seen)
    await settled(node)
    served = [group for group in node.toys.seen if group != "list"]
    assert served == groups[:1]
    node.toys.resolve(groups[0])
    assert (await client.receive())[0] == 0
    await until(lambda: groups[1] in node.toys.seen)
    await settled(node)
    assert [group for group in node.toys.seen if group != "list"] == groups[:2]


async def test_one_connection_too_many_from_a_host_is_turned_away(start: Start) -> None:
    node = await start(settings=NetworkSettings(max_connections_per_ip=2))
    first, second = await node.connect(), await node.connect()
    for client in (first, second):
        await client.ask(*LIST)
    assert await (await node.connect()).is_closed()
    await first.close()
    await until(lambda: len(node.listener.connections) <= 1)
    assert (await (await node.connect()).ask(*LIST)).throttle_time_ms == 7


async def test_a_silent_connection_is_closed_but_not_one_that_waits_for_an_answer(
    start: Start,
) -> None:
    node = await start(settings=NetworkSettings(connections_max_idle_ms=1000))
    waiting = await node.connect()
    waiting.send((heartbeat.HeartbeatRequest(group_id="g"), 0))
    await until(lambda: "g" in node.toys.seen)
    silent = await node.connect()
    assert await silent.is_closed()
    node.toys.resolve("g")
    assert (await waiting.receive())[0] == 0


async def test_a_frame_that_stops_growing_ends_its_connection(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_timeouts, "STALL_S", 0.02)
    client = await (await start()).connect()
    client.writer.write(beginning(8 * MIB, 300_000))
    assert await client.is_closed()


async def test_a_peer_that_does_not_read_gets_no_more_answers_and_is_closed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_timeouts, "STALL_S", 0.5)
    node = await start()
    served = 0

    def serve(call: Call) -> fetch.FetchResponse:
        nonlocal served
        served += 1
        partition = fetch.PartitionResult(records=bytes(4 * MIB))
        return fetch.FetchResponse(responses=[fetch.TopicResult(partitions=[partition])])

    node.dispatcher.register({ApiKey.FETCH: serve})
    client = await node.connect()
    cast("asyncio.Transport", client.writer.transport).pause_reading()
    client.send(*((fetch.FetchRequest(), 4) for _ in range(64)))
    await until(lambda: node.limits.answers.used >= WRITE_BUFFER_MAX)
    assert served <= 4
    await until(lambda: not node.listener.connections)
    assert node.limits.answers.used == 0


def hostile(rng: random.Random) -> bytes:
    """Something that a client of ours would never send, or not so."""
    kinds = (
        rng.randbytes(rng.randrange(1, 2000)),
        struct.pack(">i", rng.choice([-1, 0, 7, 2**31 - 1, 300 * MIB])) + rng.randbytes(500),
        struct.pack(">ihhih", 10, rng.randrange(-9, 999), rng.randrange(-9, 99), 1, -1),
        beginning(100 * MIB, rng.randrange(1, 60_000)),
        beginning(2000, rng.randrange(1, 1999)),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    )
    return rng.choice(kinds)


async def test_a_thousand_hostile_clients_cost_nothing(start: Start) -> None:
    node = await start()
    rng = random.Random(20261121)
    await attack(node, rng, 100)
    before = resident_bytes()
    await attack(node, rng, 1000)
    assert resident_bytes() - before < 20 * MIB
    assert node.limits.requests.used == 0
    assert (await (await node.connect()).ask(*LIST)).throttle_time_ms == 7


async def attack(node: ListeningNode, rng: random.Random, count: int) -> None:
    for _ in range(count // 50):
        clients = [await node.connect() for _ in range(50)]
        for client in clients:
            client.writer.write(hostile(rng))
        await settled(node)
        for client in node.clients:
            await client.close()
        node.clients.clear()
        await until(lambda: not node.listener.connections)


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
