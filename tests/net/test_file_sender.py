"""Slices of files leave in their place among the answers, whatever becomes of reader and file."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas.broker.handlers.call import Call
from barnabas.broker.net import connection_timeouts
from barnabas.broker.net.file_sender import FileSender
from barnabas.broker.storage.files import DiskFiles, StorageError
from barnabas.broker.storage.segment.file_slice import FileSlice, Withdrawn
from barnabas.broker.storage.segment.segment import Segment
from barnabas.protocol.api import ApiKey
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.messages import fetch, list_groups
from tests.net.client import RawClient, until
from tests.net.conftest import ListeningNode, Start

SIZE = 24 << 20
"""More than any socket holds."""


def refuse(error: StorageError) -> Any:
    raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


class Shelf:
    """One segment of random bytes; every fetch is answered with the slice that it asks for."""

    def __init__(self, directory: Path) -> None:
        self.content = os.urandom(SIZE)
        self.segment = Segment.create(DiskFiles(), directory, 0, 0)
        self.segment.append(self.content, 0, 0)
        self.reads_first = False

    def fetch(self, call: Call) -> fetch.FetchResponse:
        wanted = call.request.topics[0].partitions[0]
        first, count = wanted.fetch_offset, wanted.partition_max_bytes
        found: Any = FileSlice(self.segment, first, count, refuse)
        if self.reads_first:
            found = found.read()
        result = fetch.PartitionResult(records=found)
        topic = fetch.TopicResult(topic="topic", partitions=[result, fetch.PartitionResult()])
        return fetch.FetchResponse(responses=[topic, topic])

    def is_free(self) -> bool:
        return self.segment._uses == 0


def request(first: int, count: int) -> tuple[fetch.FetchRequest, int]:
    partition = fetch.Partition(fetch_offset=first, partition_max_bytes=count)
    return fetch.FetchRequest(topics=[fetch.Topic(topic="topic", partitions=[partition])]), 12


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


async def connected(start: Start, shelf: Shelf) -> tuple[ListeningNode, RawClient]:
    node = await start()
    node.dispatcher.register({ApiKey.FETCH: shelf.fetch})
    return node, await node.connect()


def records(answer: fetch.FetchResponse) -> list[bytes]:
    return [bytes(topic.partitions[0].records or b"") for topic in answer.responses]


async def stalled(node: ListeningNode) -> None:
    """Until a connection has sent what its socket takes, and no more."""
    await until(lambda: len(node.listener.connections) == 1)
    (connection,) = node.listener.connections
    await until(lambda: connection._sender.sent > 0 and connection._sender.is_busy)


async def test_answers_around_slices_keep_their_order(start: Start, shelf: Shelf) -> None:
    _, client = await connected(start, shelf)
    listing = (list_groups.ListGroupsRequest(), 3)
    asked = [(0, 1000), (5, 2 << 20), (SIZE - 70_000, 70_000), (1, 1)]
    for first, count in asked:
        client.send(listing, request(first, count), listing)
    for number, (first, count) in enumerate(asked):
        assert (await client.receive())[0] == 3 * number
        correlation_id, answer = await client.receive()
        assert correlation_id == 3 * number + 1
        assert records(answer) == [shelf.content[first : first + count]] * 2
        assert (await client.receive())[0] == 3 * number + 2
    assert shelf.is_free()


async def test_a_slow_reader_gets_everything_and_keeps_nobody_waiting(
    start: Start, shelf: Shelf
) -> None:
    node, slow = await connected(start, shelf)
    slow.send(request(0, SIZE), (list_groups.ListGroupsRequest(), 3))
    await stalled(node)
    quick = await node.connect()
    quick.send((list_groups.ListGroupsRequest(), 3))
    await quick.receive()
    assert node.limits.answers.used == 0, "slices cost no memory"
    assert node.toys.seen == ["list"], "nothing behind the large answer is served"
    assert records((await slow.receive())[1]) == [shelf.content] * 2
    assert (await slow.receive())[0] == 1
    assert shelf.is_free()


async def test_a_slice_waits_for_what_the_transport_still_has_to_send(
    start: Start, shelf: Shelf
) -> None:
    node, client = await connected(start, shelf)
    shelf.reads_first = True
    client.send(request(0, SIZE))
    await until(lambda: node.limits.answers.used > 0)
    shelf.reads_first = False
    client.send(request(3, SIZE - 3), request(7, 100_000))
    assert records((await client.receive())[1]) == [shelf.content] * 2
    assert records((await client.receive())[1]) == [shelf.content[3:]] * 2
    assert records((await client.receive())[1]) == [shelf.content[7:100_007]] * 2
    assert node.limits.answers.used == 0


async def test_answers_of_one_turn_that_fill_the_transport_come_before_the_slice(
    start: Start, shelf: Shelf
) -> None:
    _, client = await connected(start, shelf)
    reads = iter([True, False, True, False])
    inner = shelf.fetch

    def fetch_either(call: Call) -> fetch.FetchResponse:
        shelf.reads_first = next(reads)
        return inner(call)

    shelf.fetch = fetch_either  # type: ignore[method-assign]
    client.send(*(request(number, 900_000) for number in range(4)))
    for number in range(4):
        found = records((await client.receive())[1])
        assert found == [shelf.content[number : number + 900_000]] * 2


async def test_a_reader_that_vanishes_in_the_middle_leaves_nothing_behind(
    start: Start, shelf: Shelf
) -> None:
    node, client = await connected(start, shelf)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only their number matters
    client.send(request(0, SIZE))
    await stalled(node)
    client.writer.transport.abort()
    await until(lambda: not node.listener.connections)
    assert shelf.is_free()
    await until(lambda: len(os.listdir("/proc/self/fd")) < before)  # noqa: PTH208


async def test_a_reader_that_has_said_all_still_gets_its_answer(start: Start, shelf: Shelf) -> None:
    node, client = await connected(start, shelf)
    client.send(request(0, SIZE))
    await stalled(node)
    client.writer.write_eof()
    await asyncio.sleep(0)
    assert records((await client.receive())[1]) == [shelf.content] * 2
    await until(lambda: not node.listener.connections)


async def test_a_reader_that_takes_nothing_is_given_up(
    start: Start, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_timeouts, "STALL_S", 0.05)
    node, client = await connected(start, shelf)
    await until(lambda: bool(node.listener.connections))
    client.send(request(0, SIZE))
    await until(lambda: not node.listener.connections)
    assert shelf.is_free()


async def test_a_segment_deleted_while_it_is_sent_is_sent_to_its_end(
    start: Start, shelf: Shelf
) -> None:
    node, client = await connected(start, shelf)
    client.send(request(0, SIZE))
    await stalled(node)
    shelf.segment.retire()
    for path in shelf.segment.rename_deleted():
        path.unlink()
    assert records((await client.receive())[1]) == [shelf.content] * 2
    await until(shelf.is_free)
    assert shelf.segment._file is None


async def test_a_truncated_log_closes_the_connection_and_pads_nothing(
    start: Start, shelf: Shelf
) -> None:
    node, client = await connected(start, shelf)
    client.send(request(0, SIZE))
    await stalled(node)
    shelf.segment.cut(SIZE - 100)
    shelf.segment.append(bytes(100), 0, 0)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await client.receive()
    await until(lambda: not node.listener.connections)
    assert shelf.is_free()


async def test_closing_the_node_does_not_wait_for_a_slow_reader(start: Start, shelf: Shelf) -> None:
    node, client = await connected(start, shelf)
    client.send(request(0, SIZE))
    await stalled(node)
    await node.listener.close()
    assert shelf.is_free()


class Wire(asyncio.Transport):
    """A transport without a socket."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def get_write_buffer_size(self) -> int:
        return 0


def test_without_a_socket_a_slice_is_read(shelf: Shelf) -> None:
    wire, told = Wire(), list[str]()
    sender = FileSender(cast("asyncio.AbstractEventLoop", None), wire, told.append)
    piece = FileSlice(shelf.segment, 10, 90_000, refuse)
    assert sender.send([b"head", piece, b"tail"])
    assert wire.written == b"head" + shelf.content[10:90_010] + b"tail"
    shelf.segment.cut(50_000)
    assert not sender.send([b"head", piece])
    assert len(told) == 1


def test_a_disk_that_fails_withdraws_the_slice(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = FileSlice(shelf.segment, 0, SIZE, refuse)

    def fail(*_: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "sendfile", fail)
    with pytest.raises(Withdrawn, match="could not send"):
        piece.send(1, 0, 10)


async def test_slices_are_read_where_no_descriptor_is_left(
    start: Start, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> int:
        raise OSError(24, "Too many open files")

    _, client = await connected(start, shelf)
    with monkeypatch.context() as patched:
        patched.setattr(os, "dup", full)
        client.send(request(5, 100_000))
        assert records((await client.receive())[1]) == [shelf.content[5:100_005]] * 2
    client.send(request(7, 100_000))
    assert records((await client.receive())[1]) == [shelf.content[7:100_007]] * 2
    assert shelf.is_free()
