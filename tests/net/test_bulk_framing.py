"""Large frames are received where they are read, and nobody sees more than his own bytes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from random import Random

import pytest

from barnabas.broker.handlers.call import Call
from barnabas.broker.net.bulk_framing import BUFFER_BYTES, BulkFraming, ReceiveBuffers
from barnabas.broker.settings.node_config import NetworkSettings
from barnabas.protocol.api import ApiKey
from barnabas.protocol.codec.compiler import decode, encode, view_decoder
from barnabas.protocol.errors import CorruptRequest
from barnabas.protocol.messages import list_groups, produce
from tests.net.client import RawClient, until
from tests.net.conftest import ListeningNode, Start


def request(records: bytes) -> produce.ProduceRequest:
    partition = produce.Partition(index=3, records=records)
    return produce.ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[produce.Topic(name="topic", partition_data=[partition])],
    )


class Taker:
    """Takes the records of every request, as views or not, and answers with their count."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.kinds: set[type] = set()

    def produce(self, call: Call) -> produce.ProduceResponse:
        records = call.request.topic_data[0].partition_data[0].records
        self.kinds.add(type(records))
        self.taken.append(bytes(records))
        if isinstance(records, memoryview):
            records[:] = bytes(len(records))  # the buffer is ours until the answer is there
        return produce.ProduceResponse(throttle_time_ms=len(self.taken))


@pytest.fixture
def taker() -> Taker:
    return Taker()


async def connected(
    start: Start, taker: Taker, settings: NetworkSettings | None = None
) -> tuple[ListeningNode, RawClient]:
    node = await start(settings=settings)
    node.dispatcher.register({ApiKey.PRODUCE: taker.produce})
    return node, await node.connect()


def sizes() -> Iterator[int]:
    rng = Random(4)
    for _ in range(30):
        yield rng.choice([0, 1, 1000, 70_000, 200_000, 1_000_000, BUFFER_BYTES - 60, 2_000_000])


@pytest.mark.parametrize("cut", [0, 1, 100_000])
async def test_requests_of_every_size_arrive_in_order_however_they_are_cut(
    start: Start, taker: Taker, cut: int
) -> None:
    _, client = await connected(start, taker)
    sent = [os.urandom(size) for size in sizes()]
    stream = b"".join(client.frame(request(records), 8) for records in sent)

    async def write() -> None:
        for place in range(0, len(stream), 777_777):
            client.writer.write(stream[place : place + 777_777 - cut])
            await asyncio.sleep(0)
            client.writer.write(stream[place + 777_777 - cut : place + 777_777])
            await client.writer.drain()

    writing = asyncio.ensure_future(write())
    for number in range(len(sent)):
        correlation_id, answer = await client.receive()
        assert (correlation_id, answer.throttle_time_ms) == (number, number + 1)
    await writing
    assert taker.taken == sent
    assert memoryview in taker.kinds


async def test_small_requests_follow_large_ones(start: Start, taker: Taker) -> None:
    _, client = await connected(start, taker)
    for round_ in range(3):
        client.send((request(bytes(900_000)), 8), (list_groups.ListGroupsRequest(), 3))
        client.send((request(b"small"), 8))
        numbers = [(await client.receive())[0] for _ in range(3)]
        assert numbers == [3 * round_, 3 * round_ + 1, 3 * round_ + 2]


async def test_a_peer_whose_requests_are_large_is_received_in_bulk_from_then_on(
    start: Start, taker: Taker
) -> None:
    node, client = await connected(start, taker)
    for number in range(3):
        client.send((request(bytes(200_000)), 8))
        assert (await client.receive())[0] == number
    (connection,) = node.listener.connections
    assert type(connection._framing) is BulkFraming
    assert node.limits.requests.used == 0, "no buffer is held between two requests"
    client.send((request(b"small"), 8))
    await client.receive()
    assert type(connection._framing) is not BulkFraming


async def test_a_large_request_of_another_kind_is_read_as_well(start: Start, taker: Taker) -> None:
    _, client = await connected(start, taker)
    client.send((list_groups.ListGroupsRequest(states_filter=["x" * 1000] * 500), 4))
    assert (await client.receive())[1].throttle_time_ms == 7


async def test_a_buffer_is_given_back_when_its_peer_vanishes(start: Start, taker: Taker) -> None:
    node, client = await connected(start, taker)
    frame = client.frame(request(bytes(900_000)), 8)
    client.writer.write(frame[:800_000])
    await until(lambda: node.limits.requests.used == BUFFER_BYTES)
    client.writer.transport.abort()
    await until(lambda: not node.listener.connections)
    assert node.limits.requests.used == 0


async def test_no_more_than_half_of_the_budget_is_lent_as_buffers(
    start: Start, taker: Taker
) -> None:
    settings = NetworkSettings(queued_max_request_bytes=4 * BUFFER_BYTES)
    node, first = await connected(start, taker, settings)
    clients = [first, await node.connect(), await node.connect()]
    for client in clients:
        client.writer.write(client.frame(request(bytes(900_000)), 8)[:400_000])
    await until(lambda: node.limits.requests.used >= BUFFER_BYTES + 2 * 400_000)
    assert node.limits.requests.used < 2 * BUFFER_BYTES
    for client in clients:
        client.writer.write(bytes(900_000))
    await until(lambda: len(taker.taken) >= 3)


async def test_a_wrong_length_behind_a_large_frame_closes_the_connection(
    start: Start, taker: Taker
) -> None:
    _, client = await connected(start, taker)
    client.writer.write(client.frame(request(bytes(900_000)), 8) + b"\x7f\xff\xff\xff")
    assert (await client.receive())[0] == 0
    with pytest.raises(asyncio.IncompleteReadError):
        await client.receive()


def test_frames_lie_where_the_kernel_wrote_them() -> None:
    framing = BulkFraming(ReceiveBuffers(), 1 << 20, 0)
    frame = b"\0\0\0\x08" + b"\0\0\0\x08abcd"
    room = framing.room()
    room[: 2 * len(frame)] = frame * 2
    framing.received(2 * len(frame))
    views = [framing.next(), framing.next()]
    assert views == [frame, frame]
    assert all(view.obj is room.obj for view in views if isinstance(view, memoryview))
    assert framing.next() is None
    assert framing.held == 0


def test_a_views_length_is_checked_against_its_own_frame_alone() -> None:
    body = encode(request(b"records"), 8)
    read = view_decoder(produce.ProduceRequest, 8)
    around = memoryview(bytearray(body + b"of somebody else"))
    assert read(around[: len(body)], 0) == decode(produce.ProduceRequest, 8, body)
    longer = bytearray(around)
    longer[body.index(b"records") - 1] += 5
    with pytest.raises(CorruptRequest):
        read(memoryview(longer)[: len(body)], 0)
