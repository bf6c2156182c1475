"""One partition's log: batches in, batches out.

    start_offset ... recovery_point ... end_offset    below the middle one no power cut takes any
    start_offset ... high watermark ... end_offset    below it consumers see; replication's word

Source: docs/spec/log.md §2.9, §4.4 and §6.2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from barnabas.broker.storage.files import StorageError
from barnabas.broker.storage.producers.producer_state import SentBatch
from barnabas.broker.storage.retention import RetentionPolicy, count_deletable
from barnabas.broker.storage.segment.batch_headers import CorruptEntry, entry_at
from barnabas.broker.storage.segment.file_slice import SLICE_BYTES_MIN, FileSlice
from barnabas.broker.storage.segment.segment import IndexLost, Segment
from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.broker.storage.segment.transaction_index import AbortedTransaction
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.header import (
    CONTROL,
    ENVELOPE_BYTES,
    HEADER,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    sequence_after,
)

from . import log_follower, log_search, log_trimming
from .log_parts import Appended, LogOwner, LogParts
from .log_reader import read_batches
from .log_search import Search, TimedOffset
from .stored_log import StoredLog

T = TypeVar("T")

__all__ = ["Appended", "Log", "LogOwner", "LogParts", "TimedOffset"]

_PLACE: Final = struct.Struct(">qii")


class Log(StoredLog):
    """The batches of one partition replica."""

    __slots__ = ()

    # Appending

    def append(
        self, batch: bytearray | memoryview, *, leader_epoch: int, is_client: bool
    ) -> Appended:
        """Append one batch of magic 2 as leader: writes offset and epoch into it, keeps nothing.

        The batch was validated, or built here. A client's batch with a producer id is checked
        against the last ones of that producer. Raises Refused: 6 for an epoch that has ended,
        45, 47, 48, 52 about the producer, 56 when the disk will not have it; nothing was written
        then. What may be acknowledged is bounded by :attr:`durable_offset`.
        """
        if self._refusal is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, self._refusal)
        fields = HEADER.unpack_from(batch)
        size = len(batch)
        assert fields[1] + ENVELOPE_BYTES == size
        assert fields[6] >= 0
        base_offset = self.end_offset
        last_offset = base_offset + fields[6]
        max_timestamp = fields[8]
        segment = self._active
        position = segment.size
        if (
            position + size > self._segment_bytes
            or max_timestamp > self._roll_timestamp
            or segment.indexes.is_full
            or last_offset - segment.base_offset > OFFSETS_MAX
        ) and self._must_roll(size, last_offset, max_timestamp):
            self.roll()
            segment, position = self._active, 0
        if fields[9] >= 0:
            sent = self._check_producer(fields, batch, is_client=is_client)
            if sent is not None:
                return self._appended_before(sent, fields[5])
        if leader_epoch != self.epochs.latest:
            self._begin_epoch(leader_epoch, base_offset)
        _PLACE.pack_into(batch, 0, base_offset, size - ENVELOPE_BYTES, leader_epoch)
        try:
            segment.append(batch, last_offset, max_timestamp)
        except StorageError as error:
            self.disk_failed(error)
        end = self.end_offset = last_offset + 1
        if fields[9] >= 0:
            self.note_producer(entry_at(batch), batch)
        if position == 0:
            self._watch_time()
        if end >= self.flusher.due_at:
            self._owner.schedule_flush(self)
        stamp = max_timestamp if fields[5] & LOG_APPEND_TIME else -1
        return Appended(base_offset, last_offset, stamp, False, self.start_offset)

    def _check_producer(
        self, fields: tuple[int, ...], batch: bytearray | memoryview, *, is_client: bool
    ) -> SentBatch | None:
        if fields[5] & CONTROL:
            self.producers.check_marker(fields[9], batch)
        return self.producers.check(
            fields[9],
            fields[10],
            fields[11],
            sequence_after(fields[11], fields[6]),
            is_transactional=bool(fields[5] & TRANSACTIONAL),
            is_client=is_client,
        )

    def _appended_before(self, sent: SentBatch, attributes: int) -> Appended:
        stamp = sent.timestamp if attributes & LOG_APPEND_TIME else -1
        return Appended(sent.base_offset, sent.last_offset, stamp, True, self.start_offset)

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        if leader_epoch < self.epochs.latest:
            raise Refused(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"epoch {leader_epoch} ended, the latest is {self.epochs.latest}",
            )
        self.epochs.assign(leader_epoch, base_offset)

    def append_as_follower(self, batches: bytes) -> None:
        """Append what the leader has, byte for byte; an entry cut at the end is left out.

        Raises Refused: 2 for damaged bytes, 87 for offsets out of order, 56; what came before
        was appended then.
        """
        log_follower.append_batches(self, batches)

    def may_truncate_to(self, offset: int) -> bool:
        """Whether :meth:`truncate_to` may be called at once: no file says that more is durable.

        Else have the recovery points written down, and ask again. A file system may destroy what
        is cut and keep the old size, and a start would not look. Raises Refused(56).
        """
        with self._storage():
            return log_follower.may_truncate_to(self, offset)

    def truncate_to(self, offset: int) -> None:
        """Drop ``offset`` and all after it, and the whole batch that holds it. Raises Refused(56).

        Only when it :meth:`may_truncate_to`.
        """
        with self._storage():
            log_follower.truncate_to(self, offset)

    def truncate_fully(self, offset: int, *, start_offset: int | None = None) -> None:
        """Drop everything and begin at ``offset``. Raises Refused(56).

        ``start_offset`` above ``offset`` lies inside the first batch to come.
        """
        with self._storage():
            log_follower.truncate_fully(self, offset, start_offset)

    # Losing the oldest

    def advance_start(self, offset: int) -> None:
        """Nothing below ``offset`` is to be read any more; a lower one changes nothing.

        The files go with the next look for old segments. Never above the high watermark.
        """
        assert offset <= self.end_offset
        log_trimming.advance_start(self, offset)

    def count_deletable(self, policy: RetentionPolicy, high_watermark: int, now_ms: int) -> int:
        """How many of the oldest segments may go. Raises Refused(56)."""
        with self._storage():
            return count_deletable(
                self.segments.view,
                self.topic,
                self.config,
                policy,
                start_offset=self.start_offset,
                end_offset=self.end_offset,
                high_watermark=high_watermark,
                now_ms=now_ms,
            )

    def delete_oldest(self, count: int) -> None:
        """Delete so many segments, of which ``flusher.quiet`` is held. Raises Refused(56).

        All of them means that an empty one takes over at the log's end. Readers that hold a
        segment go on; the files are unlinked later.
        """
        with self._storage():
            log_trimming.delete_oldest(self, count)

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Let ``new`` take the place of ``old``, which compaction wrote it from.

        Raises Refused(56). ``segments.holds(old)`` is true, and what is in ``old`` lies below the
        recovery point. The files of ``new`` are complete and durable, under their names plus
        ``.swap``. Readers that hold an old segment go on; its files are unlinked later.
        """
        with self._storage():
            log_trimming.replace_segments(self, new, old)

    # Reading

    def read(self, offset: int, *, bytes_max: int, end: int, at_least_one: bool) -> bytes:
        """Whole batches from the one that holds ``offset``, all of them below ``end``.

        At most ``bytes_max`` bytes, but ``at_least_one`` batch whatever its size; empty when
        there is nothing below ``end``. The first batch may begin below ``offset``.
        Raises Refused: 1 outside of the log, 2 where the log is damaged, 56.
        """
        return self._take(Segment.read, offset, bytes_max, end, at_least_one)

    def slice(
        self, offset: int, *, bytes_max: int, end: int, at_least_one: bool
    ) -> bytes | FileSlice:
        """As :meth:`read`; many bytes are left in their file, to be sent from there."""

        def take(segment: Segment, position: int, count: int) -> bytes | FileSlice:
            if count < SLICE_BYTES_MIN:
                return segment.read(position, count)
            return FileSlice(segment, position, count, self.disk_failed)

        return self._take(take, offset, bytes_max, end, at_least_one)

    def _take(
        self,
        take: Callable[[Segment, int, int], T],
        offset: int,
        bytes_max: int,
        end: int,
        at_least_one: bool,
    ) -> T | bytes:
        if self.is_offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, self._refusal or "")
        if not self.start_offset <= offset <= self.end_offset:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.start_offset}..{self.end_offset}")
        if offset >= end:
            return b""
        try:
            return read_batches(
                self.segments.view,
                offset,
                end=min(end, self.end_offset),
                log_end=self.end_offset,
                bytes_max=bytes_max,
                at_least_one=at_least_one,
                take=take,
            )
        except (CorruptEntry, IndexLost, StorageError) as error:
            self.disk_failed(error)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where consumers of committed records may read; never above the mark.

        That is where the earliest transaction begins which is open or has its marker at the mark
        or above it.
        """
        if not self.producers.transactions:
            return high_watermark
        first = self.producers.transactions.first_unstable(high_watermark)
        if first is None:
            return high_watermark
        return min(max(first, self.start_offset), high_watermark)

    def aborted_in(self, offset: int, count: int) -> list[AbortedTransaction]:
        """The aborted transactions in ``count`` bytes of batches that were read at ``offset``.

        Perhaps some that begin a little behind. Raises Refused as :meth:`read`.
        """
        if not (self.has_aborted and count):
            return []
        with self._storage():
            return log_search.aborted(self.segments.view, offset, count, self.end_offset)

    def offset_for_time(
        self, timestamp: int, end: int, search: Search | None = None
    ) -> TimedOffset | None:
        """The first record at ``timestamp`` or later; None when there is none below ``end``.

        Raises Refused as :meth:`read`, and LongBatch where ``search`` bounds the work.
        """
        with self._storage():
            return log_search.first_at_or_after(
                self.segments.view, timestamp, self.start_offset, end, search or Search()
            )

    def max_timestamp_offset(self, end: int, search: Search | None = None) -> TimedOffset | None:
        """The first record with the greatest timestamp; None when that is not below ``end``.

        Raises Refused as :meth:`read`, and LongBatch where ``search`` bounds the work.
        """
        with self._storage():
            return log_search.newest(self.segments.view, self.start_offset, end, search or Search())

    def segment_offsets(self) -> list[tuple[int, int]]:
        """Where each segment begins and when it last changed (ms), then the log's end and now."""
        with self._storage():
            bounds = [
                (max(segment.base_offset, self.start_offset), segment.modified_ms)
                for segment in self.segments.view.segments
            ]
        if self._active.size:
            bounds.append((self.end_offset, self._now_ms()))
        return bounds

    def offsets_before(self, timestamp: int, count: int, high_watermark: int | None) -> list[int]:
        """The answer of ListOffsets v0, descending; ``high_watermark`` None shows all."""
        return log_search.offsets_before(self.segment_offsets(), timestamp, count, high_watermark)

    # Leader epochs

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """The leader of ``epoch`` writes from ``start_offset`` on; said on election.

        Source: docs/spec/log.md §9 P42.
        """
        self.epochs.assign(epoch, start_offset)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The newest epoch at or below ``epoch`` and where it ends; (-1, -1) when unknown."""
        return self.epochs.end_offset(epoch, self.end_offset)
