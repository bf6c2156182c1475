"""KafkaStream: the messages of the partitions that one thread of a classic consumer owns.

Source: docs/spec/coordinator.md §6.6. A message counts as consumed when the next one is asked for,
or when offsets are committed on purpose: a crash then repeats the message in hand, and loses none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Protocol, Self

from barnabas.client.background import Signal
from barnabas.client.consumer.consumed_records import Chunk, ConsumedRecord
from barnabas.client.errors import DecodingFailed, OffsetOutOfRange
from barnabas.client.topology import TopicPartition


class ConsumerTimeout(Exception):  # noqa: N818 - named as Kafka names it
    """No message came within ``consumer.timeout.ms``; the stream may be iterated again."""


class StreamPosition:
    """How far one partition is, while it is ours."""

    __slots__ = ("consumed", "is_ours", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, consumed: int | None) -> None:
        self.topic_partition = topic_partition
        self.consumed = consumed
        """The next offset to read after a restart: what a commit stores. None for unknown."""
        self.is_ours = True


class ChunkSource(Protocol):
    """Where chunks come from; the fetcher's side of a stream."""

    async def take(
        self, topic_partitions: Collection[TopicPartition], *, timeout_s: float | None
    ) -> Chunk | None:
        """The next chunk of these partitions; None when time is up or :meth:`wake` was called."""
        ...

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Fetch no more of these; what is ready is dropped."""

    def wake(self) -> None:
        """Have every take that waits return."""


Reset = Callable[[StreamPosition, OffsetOutOfRange], Awaitable[None]]
"""Puts a position that left its log where the policy says; raises what it was given if nowhere."""


@dataclass(slots=True)
class _OffTheLog:
    """A position that is not in the log, and when it may be reset, on the loop's clock."""

    position: StreamPosition
    error: OffsetOutOfRange
    retry_at: float = 0.0


class KafkaStream:
    """Messages of the partitions that one thread of a consumer owns, in order within each.

    An async iterator for one task at a time; it ends when the connector shuts down. Raises
    ConsumerTimeout, OffsetOutOfRange when ``auto.offset.reset`` is none, and KafkaError for a
    partition that cannot be read; the other partitions go on with the next call. One that cannot be
    decoded (DecodingFailed) is read no further and committed no further.
    """

    def __init__(
        self,
        thread_id: str,
        timeout_s: float | None,
        reset: Reset,
        reset_backoff_s: float = 0.0,
    ) -> None:
        """``reset_backoff_s`` passes before a reset that failed is tried again."""
        self.thread_id = thread_id
        """What this stream is called in the owners of its partitions."""
        self._timeout_s = timeout_s
        self._reset = reset
        self._reset_backoff_s = reset_backoff_s
        self._off_the_log: dict[TopicPartition, _OffTheLog] = {}
        """To be reset: what fetches tells it once, and reads nothing of them before."""
        self._source: ChunkSource | None = None
        self._positions: dict[TopicPartition, StreamPosition] = {}
        self._unreadable: dict[TopicPartition, StreamPosition] = {}
        """Still ours, and read no further: their next records cannot be decoded."""
        self._changed = Signal()
        self._is_over = False
        self._reading: StreamPosition | None = None
        self._records: deque[ConsumedRecord] = deque()
        self._next_offset = 0
        self._in_hand: tuple[StreamPosition, int] | None = None
        self._failures: deque[Exception] = deque()

    @property
    def topic_partitions(self) -> frozenset[TopicPartition]:
        """The partitions that feed this stream now."""
        return frozenset(self._positions)

    @property
    def is_over(self) -> bool:
        """The connector was shut down: nothing more will come."""
        return self._is_over

    def __aiter__(self) -> Self:
        """Itself."""
        return self

    async def __anext__(self) -> ConsumedRecord:
        """The next message; the one before counts as consumed."""
        record = self.next_ready()
        return await self._await_record() if record is None else record

    def next_ready(self) -> ConsumedRecord | None:
        """The next message if it is here already; the one before counts as consumed.

        The one call that another thread than the loop's may make: what a commit or a rebalance on
        the loop then sees is at worst one message old, so one more comes twice, and none is lost.
        """
        self.mark_consumed()
        return self._hand_out()

    def mark_consumed(self) -> None:
        """The message handed out last is done with."""
        if self._in_hand is not None:
            position, offset = self._in_hand
            self._in_hand = None
            if position.is_ours:
                position.consumed = offset

    # The connector's side.

    def add_partitions(self, source: ChunkSource, positions: Iterable[StreamPosition]) -> None:
        """Read these partitions too."""
        self._source = source
        self._positions |= {position.topic_partition: position for position in positions}
        self._changed.notify()
        source.wake()

    def remove_partitions(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Read these no more: nothing else of them is handed out."""
        for topic_partition in topic_partitions:
            for positions in (self._positions, self._unreadable):
                position = positions.pop(topic_partition, None)
                if position is not None:
                    position.is_ours = False
        self._wake()

    def fail(self, failure: Exception) -> None:
        """Raise this to whoever iterates, once."""
        self._failures.append(failure)
        self._wake()

    def end(self) -> None:
        """Hand out nothing more; whoever waits is told the end."""
        self.remove_partitions([*self._positions, *self._unreadable])
        self._is_over = True
        self._wake()

    async def _await_record(self) -> ConsumedRecord:
        loop = asyncio.get_running_loop()
        deadline = None if self._timeout_s is None else loop.time() + self._timeout_s
        while (record := self._hand_out()) is None:
            if self._is_over:
                raise StopAsyncIteration
            if self._failures:
                raise self._failures.popleft()
            left_s = None if deadline is None else deadline - loop.time()
            if left_s is not None and left_s <= 0:
                raise ConsumerTimeout(f"no message within {self._timeout_s:g} s")
            await self._refill(left_s)
        return record

    async def _reset_due(self) -> float | None:
        """Reset what is due; the seconds until the next is, None when none is left.

        One that fails or is cancelled stays to be reset, or its partition would never be read
        again. It is put off first, so that the other partitions are read meanwhile.
        """
        now = asyncio.get_running_loop().time
        for topic_partition, off in list(self._off_the_log.items()):
            if self._positions.get(topic_partition) is off.position:
                if off.retry_at > now():
                    continue
                off.retry_at = now() + self._reset_backoff_s
                try:
                    await self._reset(off.position, off.error)
                except OffsetOutOfRange:  # told once: there is nowhere to go on
                    self._off_the_log.pop(topic_partition)
                    raise
            self._off_the_log.pop(topic_partition)
        times = [off.retry_at for off in self._off_the_log.values()]
        return max(0.0, min(times) - now()) if times else None

    def _stop(self, position: StreamPosition) -> None:
        """Read no further: a commit behind records that nobody was handed would skip them."""
        assert self._source is not None, "a chunk from nowhere"
        topic_partition = position.topic_partition
        self._unreadable[topic_partition] = self._positions.pop(topic_partition)
        self._source.remove([topic_partition])

    def _wake(self) -> None:
        self._changed.notify()
        if self._source is not None:
            self._source.wake()

    def _hand_out(self) -> ConsumedRecord | None:
        if not self._records:
            return None
        position = self._reading
        assert position is not None, "records of no partition"
        if not position.is_ours:
            self._records.clear()
            return None
        record = self._records.popleft()
        after = self._records[0].offset if self._records else self._next_offset
        self._in_hand = (position, after)
        return record

    async def _refill(self, timeout_s: float | None) -> None:
        """Wait for a chunk, or for something else to have changed."""
        if self._source is None or not self._positions:
            await self._changed.wait(timeout_s)
            return
        due_s = await self._reset_due()
        if due_s is not None:
            timeout_s = due_s if timeout_s is None else min(due_s, timeout_s)
        try:
            chunk = await self._source.take(self._positions, timeout_s=timeout_s)
        except OffsetOutOfRange as error:
            topic_partition = TopicPartition(error.topic, error.partition)
            position = self._positions.get(topic_partition)
            if position is not None:
                self._off_the_log[topic_partition] = _OffTheLog(position, error)
            return
        if chunk is None:
            return
        position = self._positions.get(chunk.topic_partition)
        if position is None:
            return
        try:
            self._records.extend(chunk.records())
        except DecodingFailed:
            self._stop(position)
            raise
        self._reading = position
        self._next_offset = chunk.next_offset
        if not self._records:  # nothing in it was for readers
            position.consumed = chunk.next_offset
