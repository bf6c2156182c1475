"""A stream of a classic consumer, as its partitions go wrong.

Source: docs/spec/coordinator.md §6.6 and §6.7.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable

import pytest

from barnabas.client.classic.kafka_stream import KafkaStream, StreamPosition
from barnabas.client.consumer.consumed_records import Chunk
from barnabas.client.consumer.fetched_batches import BatchBytes, find_batches
from barnabas.client.errors import DecodingFailed, Disconnected, OffsetOutOfRange
from barnabas.client.topology import TopicPartition
from barnabas.protocol.records import batch
from barnabas.protocol.records.record import Record

A, B = (TopicPartition("t", number) for number in range(2))


class Chunks:
    """What a fetcher has ready, and the partitions that it was told to leave."""

    def __init__(self, *ready: Chunk | Exception) -> None:
        self.ready = deque(ready)
        self.removed: list[TopicPartition] = []

    async def take(
        self, topic_partitions: Collection[TopicPartition], *, timeout_s: float | None
    ) -> Chunk | None:
        found = self.ready.popleft()
        if isinstance(found, Exception):
            raise found
        return found if found.topic_partition in topic_partitions else None

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        self.removed += topic_partitions

    def wake(self) -> None:
        """Nobody waits."""


def a_chunk(place: TopicPartition, offset: int, *, is_damaged: bool = False) -> Chunk:
    made = bytearray(batch.build_batch_of([Record(offset, 0, None, b"%d" % offset)]))
    if is_damaged:
        made[-1] = 0x7F  # the count of headers
    found = find_batches(bytes(made), offset, check_crcs=False)
    assert isinstance(found.source, BatchBytes)
    return Chunk(place, found.source, found.next_offset)


def a_stream(source: Chunks, *positions: StreamPosition) -> KafkaStream:
    async def never(position: StreamPosition, error: OffsetOutOfRange) -> None:
        raise AssertionError("no reset was expected")

    stream = KafkaStream("c-0", None, never)
    stream.add_partitions(source, positions)
    return stream


async def test_a_partition_that_cannot_be_decoded_is_read_and_committed_no_further() -> None:
    source = Chunks(
        a_chunk(A, 5), a_chunk(A, 6, is_damaged=True), a_chunk(A, 7), a_chunk(B, 0), a_chunk(B, 1)
    )
    unreadable, other = StreamPosition(A, 5), StreamPosition(B, 0)
    stream = a_stream(source, unreadable, other)

    assert (await anext(stream)).offset == 5
    with pytest.raises(DecodingFailed) as failure:
        await anext(stream)
    assert (failure.value.partition, failure.value.offset) == (0, 6)
    assert source.removed == [A]
    assert [(await anext(stream)).partition for _ in range(2)] == [1, 1]
    assert (unreadable.consumed, unreadable.is_ours) == (6, True)


async def test_a_partition_that_could_not_be_decoded_is_ours_until_it_is_given_up() -> None:
    position = StreamPosition(A, 5)
    stream = a_stream(Chunks(a_chunk(A, 5, is_damaged=True)), position)
    with pytest.raises(DecodingFailed):
        await anext(stream)
    stream.remove_partitions([A])
    assert not position.is_ours


class Resets:
    """Resets positions to 7, unless told to fail or to wait."""

    def __init__(self, source: Chunks, *failures: Exception) -> None:
        self.failures = deque(failures)
        self.asked = 0
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self._source = source

    async def reset(self, position: StreamPosition, error: OffsetOutOfRange) -> None:
        self.asked += 1
        self.begun.set()
        await self.may_go_on.wait()
        if self.failures:
            raise self.failures.popleft()
        if position.is_ours:
            self._source.ready.append(a_chunk(position.topic_partition, 7))


async def test_a_reset_that_failed_is_made_again() -> None:
    source = Chunks(OffsetOutOfRange(*A, 5))
    resets = Resets(source, Disconnected("no leader"))
    stream = KafkaStream("c-0", None, resets.reset)
    stream.add_partitions(source, [StreamPosition(A, 5)])

    with pytest.raises(Disconnected):
        await anext(stream)
    assert (await anext(stream)).offset == 7
    assert resets.asked == 2


async def test_a_reset_that_was_cancelled_is_made_again() -> None:
    source = Chunks(OffsetOutOfRange(*A, 5))
    resets = Resets(source)
    resets.may_go_on.clear()
    stream = KafkaStream("c-0", None, resets.reset)
    stream.add_partitions(source, [StreamPosition(A, 5)])

    reading = asyncio.ensure_future(anext(stream))
    await resets.begun.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    resets.may_go_on.set()
    assert (await anext(stream)).offset == 7


async def test_other_partitions_are_read_while_a_reset_fails() -> None:
    source = Chunks(OffsetOutOfRange(*A, 5), a_chunk(B, 0), a_chunk(B, 1))
    resets = Resets(source, Disconnected("no leader"))
    stream = KafkaStream("c-0", None, resets.reset, reset_backoff_s=3_600)
    stream.add_partitions(source, [StreamPosition(A, 5), StreamPosition(B, 0)])

    with pytest.raises(Disconnected):
        await anext(stream)
    assert [(await anext(stream)).offset for _ in range(2)] == [0, 1]
    assert resets.asked == 1


async def test_without_a_policy_an_offset_off_the_log_is_told_once() -> None:
    source = Chunks(OffsetOutOfRange(*A, 5), a_chunk(B, 0), a_chunk(B, 1))
    resets = Resets(source, OffsetOutOfRange(*A, 5))
    stream = KafkaStream("c-0", None, resets.reset)
    stream.add_partitions(source, [StreamPosition(A, 5), StreamPosition(B, 0)])

    with pytest.raises(OffsetOutOfRange):
        await anext(stream)
    assert [(await anext(stream)).offset for _ in range(2)] == [0, 1]
    assert resets.asked == 1


async def test_a_partition_that_was_given_up_is_not_reset_any_more() -> None:
    source = Chunks(OffsetOutOfRange(*A, 5), a_chunk(B, 0))
    resets = Resets(source, Disconnected("no leader"))
    stream = KafkaStream("c-0", None, resets.reset)
    stream.add_partitions(source, [StreamPosition(A, 5), StreamPosition(B, 0)])

    with pytest.raises(Disconnected):
        await anext(stream)
    stream.remove_partitions([A])
    assert (await anext(stream)).offset == 0
    assert resets.asked == 1
