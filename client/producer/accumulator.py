"""The record accumulator: records encoded into batches by partition, bounded in memory.

A partition queue has the batches that wait, the batches in flight, and the sequence numbers that
keep a retry from becoming a duplicate. One that has had both, under producer id 7::

    in_flight (oldest first)        waiting (the front leaves next)
    | 0..2 | 3..4 |                 | no number | no number, open |     next_sequence = 5

Only the last batch that waits may be open, and those that have numbers are before those that have
none: after a failure the first ones of ``waiting`` are numbered, too.

Nothing here sends: the producer adds, the sender (sender.py) takes and completes, both on one
loop. All times are seconds of the loop's clock, except timestamps of records.

Source: docs/spec/coordinator.md §7.3; docs/spec/log.md §1.4 and §1.5; KIP-98 (sequences).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

from barnabas.client.errors import KafkaError, QueueFull
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.builder import seal
from barnabas.protocol.records.header import HEADER_BYTES, SEQUENCE_MASK, TRANSACTIONAL
from barnabas.protocol.records.record import HeaderPair
from barnabas.protocol.records.varints import SMALL, SMALL_COUNT, encode_varint

from .producer_config import ProducerConfig

_NULL: Final = encode_varint(-1)
_RECORD_OVERHEAD: Final = 32
"""What a record may need at most besides key, value and headers.

Length 5, attributes 1, timestamp delta 10, offset delta 5, key length 5, value length 5, and one
byte that says that there are no headers.
"""
_HEADER_OVERHEAD: Final = 10
"""On top of a header's own encoding: sizes are bounds from above, never below what is sent."""


class RecordMetadata(NamedTuple):
    """Where a record is now."""

    topic: str
    partition: int
    offset: int
    """-1 when the broker did not tell: nobody was asked to acknowledge."""
    timestamp: int
    """Milliseconds since 1970: the producer's, or the broker's if the topic has its stamp."""


class ProducerIdAndEpoch(NamedTuple):
    """What a broker knows an idempotent producer by.

    Where a sequence breaks, Kafka's producer raises its epoch (KIP-360). So does this one with
    transactions; without, it asks for another id, and only for the partition that is concerned.
    """

    producer_id: int
    epoch: int


NO_PRODUCER_ID: Final = ProducerIdAndEpoch(-1, -1)


class ProducerBatch:
    """Records of one partition that travel together, and succeed or fail together.

    Open while records are added; closed when it is full or leaves, and never opened again: a leader
    knows a retry by its first and last sequence, so it must have the same records.
    """

    __slots__ = (
        "attempts",
        "base_offset",
        "base_timestamp",
        "bytes",
        "count",
        "deadline",
        "done",
        "error",
        "is_open",
        "linger_until",
        "max_timestamp",
        "may_be_logged",
        "parts",
        "sequence",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        done: asyncio.Future[int],
        timestamp_ms: int,
        linger_until: float,
        deadline: float,
    ) -> None:
        self.topic_partition = topic_partition
        self.done = done
        """Ends with the broker's timestamp, -1 for none."""
        self.base_timestamp = self.max_timestamp = timestamp_ms
        """That of the first record: a later one may be older, its delta is negative then."""
        self.linger_until = linger_until
        self.deadline = deadline
        """``delivery.timeout.ms`` after its first record: not tried again from then on (KIP-91)."""
        self.parts: list[bytes] = []
        """Encoded records, lengths and bodies by turns; kept for retries, emptied at the end."""
        self.bytes = HEADER_BYTES
        """Size before compression, with the header of 61 bytes."""
        self.count = 0
        self.is_open = True
        self.sequence = -1
        """Base sequence, set when the batch first leaves; -1 before, and without idempotence."""
        self.attempts = 0
        """How often it left, so one more than its retries."""
        self.may_be_logged = False
        """An attempt ended without proof: the records may be in the log or not.

        Never unset: a later refusal says nothing about the earlier attempt. Such a batch may only
        go again under the same producer id and sequence, where the leader drops it as a duplicate.
        """
        self.error: KafkaError | None = None
        """Why the last try failed."""
        self.base_offset = -1
        """Offset of its first record; -1 for acks=0, for a duplicate, and before the answer."""

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[HeaderPair],
        timestamp_ms: int,
    ) -> None:
        """Encode one record (magic 2) and add it; numbers are zigzag varints::

            | length | attributes 0 | timestamp delta | offset delta |
            | key length | key | value length | value | header count | headers |

        A length of -1 is null. Encoded at once, and not when the batch leaves: the application's
        buffers are its own again, and the loop has no long turn when a large batch is sealed.
        """
        index, stamp = self.count, timestamp_ms - self.base_timestamp
        if key is None:
            key_size, key = _NULL, b""
        else:
            size = len(key)
            key_size = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
        if value is None:
            value_size, value = _NULL, b""
        else:
            size = len(value)
            value_size = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
        body = b"".join(
            (
                b"\0",
                SMALL[stamp] if 0 <= stamp < SMALL_COUNT else encode_varint(stamp),
                SMALL[index] if index < SMALL_COUNT else encode_varint(index),
                key_size,
                key,
                value_size,
                value,
                _encoded(headers) if headers else b"\0",
            )
        )
        size = len(body)
        prefix = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
        self.parts += (prefix, body)
        self.bytes += size + len(prefix)
        self.count = index + 1
        if timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms

    def encode(
        self, codec: int, producer_id: ProducerIdAndEpoch, *, is_transactional: bool = False
    ) -> bytearray:
        """The bytes for the broker; the batch is closed by it.

        Sealed at each attempt, as producer id and sequence may have changed since the last one; the
        records are joined only once. Base offset and leader epoch are the leader's to fill in.
        """
        self.is_open = False
        if len(self.parts) > 1:
            self.parts = [b"".join(self.parts)]
        return seal(
            self.parts[0],
            codec,
            TRANSACTIONAL if is_transactional else 0,
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            producer_id.producer_id,
            producer_id.epoch,
            self.sequence,
            self.count,
        )


def _encoded(headers: Sequence[HeaderPair]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        key = name.encode()
        parts += (encode_varint(len(key)), key)
        parts += (_NULL,) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


class Delivery:
    """One record's way to the log: await it for its metadata, or for why it failed.

    Two waits, as a record has no batch before the partitions of its topic are known: first for
    :meth:`join` or :meth:`refuse`, then for the batch. Both are shielded: the batch is shared, and
    an application that cancels its wait for one record must not end that of the others.
    """

    __slots__ = ("_batch", "_error", "_index", "_timestamp", "_waiter", "is_accepted")

    def __init__(self) -> None:
        self.is_accepted = False
        """The producer has it, and will say what becomes of it."""
        self._batch: ProducerBatch | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._index = self._timestamp = 0

    def join(self, batch: ProducerBatch, timestamp_ms: int) -> None:
        """The record is the next one of ``batch``."""
        self.is_accepted = True
        self._batch, self._index, self._timestamp = batch, batch.count, timestamp_ms
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def refuse(self, error: Exception) -> None:
        """The record will never be part of a batch; the first reason counts."""
        if self._batch is None and self._error is None:
            self._error = error
            if self._waiter is not None and not self._waiter.done():
                self._waiter.set_result(None)

    @property
    def is_done(self) -> bool:
        """Whether awaiting it returns, or raises, at once."""
        return self._error is not None or (self._batch is not None and self._batch.done.done())

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Wait for the acknowledgement; raises KafkaError, or what the encoder raised."""
        if self._batch is None and self._error is None:
            if self._waiter is None:
                self._waiter = asyncio.get_running_loop().create_future()
            yield from asyncio.shield(self._waiter).__await__()
        if self._error is not None:
            raise self._error
        batch = self._batch
        assert batch is not None, "woken without a batch"
        if not batch.done.done():
            yield from asyncio.shield(batch.done).__await__()
        append_time, offset = batch.done.result(), batch.base_offset
        return RecordMetadata(
            *batch.topic_partition,
            offset if offset < 0 else offset + self._index,
            self._timestamp if append_time < 0 else append_time,
        )


class PartitionQueue:
    """One partition: batches that wait, and those in flight, both in the order of the log.

    ``in_flight`` and then ``waiting`` is the order in which the application sent. Batches move
    from the front of ``waiting`` to the end of ``in_flight``, and only all together back again.
    Checked for any answers by ``test_sequences_have_no_gap_whatever_returns``.
    """

    __slots__ = (
        "in_flight",
        "is_producer_known",
        "is_retrying",
        "needs_producer_id",
        "next_sequence",
        "producer_id",
        "retry_at",
        "topic_partition",
        "waiting",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: deque[ProducerBatch] = deque()
        self.producer_id: ProducerIdAndEpoch | None = None
        """The producer's own unless this partition had to take another."""
        self.needs_producer_id = False
        """The sequence is broken; nothing leaves before :meth:`renumber`."""
        self.next_sequence = 0
        """The base sequence of the next batch that leaves for the first time."""
        self.is_producer_known = False
        """A batch was acknowledged since the last failure: the replicas know the producer.

        A leader takes any sequence from one that it does not know. A node that turns a batch away
        and becomes leader at that moment would take the next one, and never again the first: as
        long as nothing was acknowledged, batches go one by one.
        """
        self.is_retrying = False
        """Something in flight failed: nothing more leaves until all of it was answered.

        A batch that left now would be ahead of the failed one, which has to go again.
        """
        self.retry_at = 0.0
        """Nothing leaves before. The partition waits alone, others of its leader go on."""

    def is_ready(self, now: float, in_flight_max: int, *, is_flushing: bool) -> bool:
        """Whether its first batch may leave.

        A closed batch does not linger: it is full, or left before.
        """
        if not self.waiting or self.is_retrying or self.needs_producer_id:
            return False
        if len(self.in_flight) >= (
            in_flight_max if self.is_producer_known else min(in_flight_max, 1)
        ):
            return False
        if self.retry_at > now:
            return False
        head = self.waiting[0]
        return is_flushing or not head.is_open or head.linger_until <= now

    def ready_in_s(self, now: float) -> float | None:
        """Seconds until it is ready by time alone; None when only an answer can make it so."""
        head = self.waiting[0]
        if self.is_retrying or self.in_flight:
            return None
        return max(0.0, max(self.retry_at, head.linger_until if head.is_open else 0.0) - now)

    def drain_first(self, *, is_numbered: bool) -> ProducerBatch:
        """Take the first batch out, numbered unless it has its numbers already.

        Numbers are given here and not when records come, so that a batch that expires before it
        leaves makes no gap. A retry keeps its number: by it the leader knows a duplicate (KIP-98).
        """
        batch = self.waiting.popleft()
        batch.is_open = False
        batch.attempts += 1
        batch.error = None
        if is_numbered and batch.sequence < 0:
            batch.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + batch.count) & SEQUENCE_MASK
        self.in_flight.append(batch)
        return batch

    def reenqueue(self, failed: Sequence[ProducerBatch], retry_at: float) -> None:
        """Put batches back in front, in their order, once nothing is under way any more."""
        assert not self.in_flight, "a younger batch in flight would land before these"
        self.waiting.extendleft(reversed(failed))
        self.is_retrying, self.retry_at = False, retry_at

    def rewind_sequence(self, sequence: int) -> None:
        """Number what waits from ``sequence`` again: the batch that had it is not in the log.

        Otherwise the leader would refuse all that follows as out of order. Sequences wrap at 2^31,
        hence the comparison by distance: what is less than half of all numbers ahead stands behind
        the gap. A batch before it keeps its number, under which it may be in the log; one without a
        number (-1) has none afterwards, either way.
        """
        self.next_sequence = sequence
        for batch in self.waiting:
            if (batch.sequence - sequence) & SEQUENCE_MASK <= SEQUENCE_MASK // 2:
                batch.sequence = -1

    def renumber(self, producer_id: ProducerIdAndEpoch) -> None:
        """Number what waits from 0 under another producer id; none of it may be in the log.

        The leader takes sequence 0 of an id that it has never seen.
        """
        self.producer_id = producer_id
        self.needs_producer_id = self.is_producer_known = False
        self.next_sequence = 0
        for batch in self.waiting:
            batch.sequence = -1


class RecordAccumulator:
    """The queues of all partitions, and the memory that they share.

    Queues are never removed: they have the sequence numbers, which must go on where they ended.
    """

    def __init__(self, config: ProducerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self.queues: dict[tuple[str, int], PartitionQueue] = {}
        self.active: dict[TopicPartition, PartitionQueue] = {}
        """Those with batches that wait, so that a turn of the sender costs nothing for the others.

        The sender takes out what it finds empty.
        """
        self.bytes = 0
        """Encoded records of batches that are neither acknowledged nor failed yet."""
        self.incomplete: set[asyncio.Future[int]] = set()
        """Ends of all batches that are neither acknowledged nor failed: what a flush waits for."""
        self._config = config
        self._record_bytes_max = config.request_bytes_max - HEADER_BYTES
        self._buffer_bytes = config.buffer_bytes
        self._batch_bytes = config.batch_bytes
        self._loop = loop

    def has_room(self) -> bool:
        """Whether another record may be added, of any size: the last one may go over the bound.

        Who was told that there is room can rely on it, without knowing how we count bytes.
        """
        return self.bytes < self._config.buffer_bytes

    def add(
        self,
        topic_partition: tuple[str, int],
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[HeaderPair],
        timestamp_ms: int,
        delivery: Delivery,
    ) -> bool:
        """Append a record to its partition's queue; True when it is the first of a new batch.

        Raises QueueFull without room, and KafkaError(MESSAGE_TOO_LARGE) for what no request
        could hold.
        """
        size = _RECORD_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            # What cannot be encoded raises here, before a batch or a delivery is touched.
            size += sum(len(_encoded([header])) + _HEADER_OVERHEAD for header in headers)
        if size > self._record_bytes_max or self.bytes >= self._buffer_bytes:
            self._refuse(size)
        queue = self.queues.get(topic_partition)
        if queue is None:
            queue = self.queues[topic_partition] = self.new_queue(TopicPartition(*topic_partition))
        waiting = queue.waiting
        batch = waiting[-1] if waiting else None
        is_new = batch is None or not batch.is_open or batch.bytes + size > self._batch_bytes
        if is_new:
            if batch is not None:
                batch.is_open = False
            batch = self._open(queue, timestamp_ms)
        assert batch is not None, "opened if there was none"
        before = batch.bytes
        # Joined first: it takes the place in the batch that the record is about to get.
        delivery.join(batch, timestamp_ms)
        batch.append(key, value, headers, timestamp_ms)
        self.bytes += batch.bytes - before
        return is_new

    def complete(
        self, batch: ProducerBatch, append_time: int, error: KafkaError | None = None
    ) -> None:
        """Tell everybody who waits how a batch ended, and free its memory.

        For each batch once: its bytes are taken off the count here and nowhere else.
        """
        self.bytes -= batch.bytes - HEADER_BYTES
        batch.parts = []
        self.incomplete.discard(batch.done)
        if batch.done.done():
            return
        if error is None:
            batch.done.set_result(append_time)
        else:
            batch.done.set_exception(error)
            batch.done.exception()  # marks it as seen: nobody has to await a delivery

    def new_queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition that had none."""
        return PartitionQueue(topic_partition)

    def _refuse(self, size: int) -> None:
        if size > self._record_bytes_max:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a record of about {size} bytes; max.request.size is "
                f"{self._config.request_bytes_max}",
            )
        raise QueueFull(f"{self.bytes} bytes wait, buffer.memory={self._buffer_bytes}")

    def _open(self, queue: PartitionQueue, timestamp_ms: int) -> ProducerBatch:
        now = self._loop.time()
        batch = ProducerBatch(
            queue.topic_partition,
            self._loop.create_future(),
            timestamp_ms,
            now + self._config.linger_ms / 1000,
            now + self._config.delivery_timeout_ms / 1000,
        )
        queue.waiting.append(batch)
        self.active[queue.topic_partition] = queue
        self.incomplete.add(batch.done)
        return batch
