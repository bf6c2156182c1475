"""The record batches of one partition in a fetch response: checked at once, decoded lazily.

An answer may begin before the offset that was asked for, and end within a batch. A reader of
committed records leaves out the batches of transactions that were aborted, and everybody leaves
out their markers. Source: docs/spec/log.md §1.4 to §1.6; KIP-98 (aborted transactions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from barnabas.client.errors import DecodingFailed
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import AbortedTransaction
from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import READ_BYTES_MAX, decompress
from barnabas.protocol.records.control import Marker, parse_marker
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import (
    CODEC_MASK,
    CONTROL,
    ENVELOPE_BYTES,
    HEADER,
    HEADER_BYTES,
    MAGIC_AT,
    TRANSACTIONAL,
)

from .consumed_records import ConsumedRecord
from .record_decoder import consumed_records, record_values

_SIZE_AT: Final = 8


class FoundBatches(NamedTuple):
    """What an answer held for one partition."""

    source: BatchBytes | None
    """None when no record is to be shown: nothing came, or only markers and aborted ones."""
    next_offset: int
    leader_epoch: int
    """Of the last whole batch; -1 when there was none."""
    bytes_needed: int
    """How much an answer must hold for the batch that was cut; 0 when one came whole."""


class BatchBytes:
    """Whole batches in the buffer they arrived in, none below ``start_offset`` to be shown."""

    __slots__ = ("_buffer", "_positions", "_start_offset")

    def __init__(self, buffer: batch.Buffer, positions: Sequence[int], start_offset: int) -> None:
        self._buffer = buffer
        self._positions = positions
        self._start_offset = start_offset

    def records(self, topic_partition: TopicPartition) -> list[ConsumedRecord]:
        """Decode all batches; raises DecodingFailed."""
        return list(self.iterate(topic_partition))

    def iterate(self, topic_partition: TopicPartition) -> Iterator[ConsumedRecord]:
        """Decode batch by batch, so that records may go while later ones come."""
        records = chain.from_iterable(
            self._decoded(position, topic_partition) for position in self._positions
        )
        if self._begins_before_offset:
            start = self._start_offset
            return (record for record in records if record.offset >= start)
        return records

    def count(self) -> int | None:
        """How many records, as far as the headers tell."""
        buffer = self._buffer
        if self._begins_before_offset or any(
            buffer[position + MAGIC_AT] < 2 for position in self._positions
        ):
            return None
        return sum(batch.record_count(buffer, position) for position in self._positions)

    def values(self) -> list[Any]:
        """The values alone."""
        if self._begins_before_offset:
            return [record.value for record in self.records(TopicPartition("", 0))]
        found: list[Any] = []
        for position in self._positions:
            section, head = self._section(position)
            if head is None or not record_values(section, head.record_count, found):
                records = batch.records(self._buffer, position)
                found += [record.value for record in records]
        return found

    @property
    def _begins_before_offset(self) -> bool:
        """Whether the first batch holds records that are not to be shown."""
        buffer, first = self._buffer, self._positions[0]
        return buffer[first + MAGIC_AT] < 2 or batch.base_offset(buffer, first) < self._start_offset

    def _decoded(self, position: int, topic_partition: TopicPartition) -> list[ConsumedRecord]:
        topic, partition = topic_partition
        found: list[ConsumedRecord] = []
        try:
            section, head = self._section(position)
            if head is None or not consumed_records(section, head, topic_partition, found):
                found += [
                    ConsumedRecord(topic, partition, *record)
                    for record in batch.records(self._buffer, position)
                ]
        except CorruptRecords as bad:
            at = batch.base_offset(self._buffer, position)
            raise DecodingFailed(topic, partition, at, bad.message) from bad
        return found

    def _section(self, position: int) -> tuple[bytes, batch.Header | None]:
        """The records of one batch decompressed; no header for what is older than batches."""
        buffer = self._buffer
        if buffer[position + MAGIC_AT] < 2:
            return b"", None
        head = batch.header(buffer, position)
        stop = position + ENVELOPE_BYTES + head.length
        section = bytes(buffer[position + HEADER_BYTES : stop])
        codec = head.attributes & CODEC_MASK
        return (decompress(codec, section, bytes_max=READ_BYTES_MAX) if codec else section), head


def find_batches(
    buffer: batch.Buffer,
    fetch_offset: int,
    *,
    check_crcs: bool = True,
    aborted: Iterable[AbortedTransaction] | None = None,
) -> FoundBatches:
    """Walk over an answer; ``aborted`` None shows the records of aborted transactions as well.

    Raises CorruptRecords when a size, a magic or a checksum is wrong.
    """
    positions: list[int] = []
    next_offset, leader_epoch, last = fetch_offset, -1, 0
    ended = None if aborted is None else _Aborted(aborted)
    for position, size in batch.iterate(buffer):
        if check_crcs and not batch.crc_is_valid(buffer, position, size):
            raise CorruptRecords(
                f"checksum of the batch at offset {batch.base_offset(buffer, position)}",
                ErrorCode.CORRUPT_MESSAGE,
            )
        last = position + size
        after = batch.next_offset(buffer, position)
        is_shown = (
            ended.shows(buffer, position) if ended else not batch.is_control(buffer, position)
        )
        if after > fetch_offset:
            next_offset, leader_epoch = after, batch.leader_epoch(buffer, position)
            if is_shown:
                positions.append(position)
    source = BatchBytes(buffer, positions, fetch_offset) if positions else None
    return FoundBatches(source, next_offset, leader_epoch, _cut(buffer, last))


def _cut(buffer: batch.Buffer, last: int) -> int:
    """The size of the batch at the end that was cut, when it is the only one."""
    if last or not len(buffer):
        return 0
    if len(buffer) < _SIZE_AT + 4:
        return 2 * len(buffer)
    return max(batch.size(buffer), len(buffer) + 1)


class _Aborted:
    """Which batches belong to transactions that were aborted, told in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._begin = sorted(
            aborted, key=lambda transaction: transaction.first_offset, reverse=True
        )
        self._open: set[int] = set()

    def shows(self, buffer: batch.Buffer, position: int) -> bool:
        """Whether the batch there is for readers of committed records; call in log order."""
        if buffer[position + MAGIC_AT] < 2:
            return True
        fields = HEADER.unpack_from(buffer, position)
        last_offset, attributes, producer_id = fields[0] + fields[6], fields[5], fields[9]
        while self._begin and self._begin[-1].first_offset <= last_offset:
            self._open.add(self._begin.pop().producer_id)
        if attributes & CONTROL:
            (record,) = batch.records(buffer, position)
            if parse_marker(record.key) is Marker.ABORT:
                self._open.discard(producer_id)
            return False
        return not (attributes & TRANSACTIONAL and producer_id in self._open)
