"""One partition's log: batches in, batches out, and what happens to them on the disk.

    start_offset ... recovery_point ... end_offset    below the middle one no power cut takes any
    start_offset ... high watermark ... end_offset    below it consumers see; replication's word

Its directory, ``<topic>-<partition>``:

    00000000000000000000.log  .index  .timeindex              a closed segment
    00000000000000004711.log  .index  .timeindex  .txnindex   the active one: only it grows
    00000000000000004711.snapshot                             producer state up to 4711
    leader-epoch-checkpoint   partition.metadata              which leader wrote what; the topic id

One idea, though long: every method keeps the same few bounds in step, and cutting them apart had
made each of them public. Not here are the list of segments (segments.py), how batches are found
(log_reader.py), what makes them durable (flushing.py) and what a follower drops
(follower_truncation.py). All methods run on the event loop; only a flush works in a thread.
Source: docs/spec/log.md §2.8, §2.9, §3.1, §3.2, §4.4 and §6.2.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, TypeVar

from barnabas.broker.settings.log_config import FOREVER, LogConfig
from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.producers.producer_state import BatchMetadata
from barnabas.broker.storage.recovery.offset_holes import note_holes
from barnabas.broker.storage.recovery.quarantine import QuarantineEntry, write_quarantine
from barnabas.broker.storage.recovery.segment_recovery import Trust, recover_segment
from barnabas.broker.storage.retention import RetentionPolicy, count_deletable
from barnabas.broker.storage.segment.batch_headers import (
    BatchHeader,
    CorruptEntry,
    Quarantined,
    header_at,
)
from barnabas.broker.storage.segment.file_slice import SLICE_BYTES_MIN, FileSlice
from barnabas.broker.storage.segment.segment import IndexLost, Segment
from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.broker.storage.segment.transaction_index import AbortedTransaction
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import Buffer, crc_is_valid, iterate
from barnabas.protocol.records.header import (
    CONTROL,
    ENVELOPE_BYTES,
    HEADER,
    LOG_APPEND_TIME,
    MAGIC_AT,
    TRANSACTIONAL,
    sequence_after,
)

from . import follower_truncation, log_reader
from .flushing import Flusher
from .log_reader import Search, TimedOffset, read_batches
from .segments import Segments

if TYPE_CHECKING:
    from barnabas.broker.storage.recovery.loading import LoadedLog

log = logging.getLogger(__name__)

T = TypeVar("T")

_NEVER: Final = 2 * FOREVER
"""Above every timestamp: an empty segment is not rolled by time."""
_ALWAYS: Final = -2
"""Below every timestamp: each append must look at the clock."""
_OFFSET_SIZE_EPOCH: Final = struct.Struct(">qii")
"""Base offset, batch length, leader epoch: what a leader writes into the first 16 bytes."""


@dataclass(slots=True)
class LogAppendInfo:
    """What became of a batch."""

    base_offset: int
    last_offset: int
    timestamp: int
    """The broker's time when the topic stamps with it, else -1."""
    is_duplicate: bool
    """The batch had been appended before, at these offsets: nothing was written."""
    log_start_offset: int


class LogOwner(Protocol):
    """What a log asks of whoever keeps it; all calls come on the loop."""

    def schedule_flush(self, log: Log) -> None:
        """Have ``flush`` called soon; often said again before that has happened."""

    def repair(self, log: Log, segment: Segment) -> None:
        """Make the indexes of a segment again; often said again before that has happened."""

    def listed_recovery_point(self, log: Log) -> int:
        """The greatest recovery point of this log that a start may find written down."""

    def inspect(self, log: Log) -> None:
        """Have suspect segments looked at soon: a reader met damage."""

    def storage_failed(self, log: Log, error: StorageError) -> None:
        """The log's directory cannot be trusted any more: take it offline."""

    def discard(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Unlink files that were renamed to ``.deleted``, after a while."""


class Log:
    """The batches of one partition replica.

    ``topic``, ``partition``, ``directory`` and ``topic_id`` (16 bytes, None when the directory
    names none) say which it is; ``end_offset`` is the offset of the next record.
    """

    __slots__ = (
        "_active",
        "_config",
        "_files",
        "_now_ms",
        "_owner",
        "_random",
        "_refusal",
        "_roll_ms",
        "_roll_timestamp",
        "_segment_bytes",
        "before_truncation",
        "directory",
        "end_offset",
        "epochs",
        "flusher",
        "has_aborted",
        "has_holes",
        "is_being_cleaned",
        "is_full",
        "is_offline",
        "partition",
        "producers",
        "segments",
        "snapshots",
        "start_offset",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: Path,
        loaded: LoadedLog,
        *,
        config: LogConfig,
        files: Files,
        owner: LogOwner,
        now_ms: Callable[[], int],
        random: Random,
        topic_id: bytes | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.directory = directory
        self.topic_id = topic_id
        self._files = files
        self._owner = owner
        self._now_ms = now_ms
        self._random = random
        self.segments = Segments(files, directory, loaded.snapshots, loaded.segments)
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.snapshots = loaded.snapshots
        self.has_aborted = any(len(segment.indexes.transactions) for segment in loaded.segments)
        """A transaction was aborted, perhaps in a segment that is gone by now."""
        self.has_holes = loaded.has_holes
        """Offsets may be missing, and a start knows it."""
        self.flusher = Flusher(
            files, directory, loaded.recovery_point, loaded.epochs, loaded.snapshots
        )
        self.is_full = False
        """The disk was full: nothing is appended until :meth:`verify_again` has ended."""
        self.is_offline = False
        """The directory failed: nothing works any more."""
        self.is_being_cleaned = False
        """Compaction has the closed segments: retention leaves the log alone until it is done."""
        self.before_truncation: list[Callable[[int], None]] = []
        """Told the offset from which on records are about to go; -1 when the log itself is."""
        self._refusal: str | None = None
        self._active = self.segments.active
        self._roll_timestamp = _NEVER
        self._use(config)

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, {self.start_offset}..{self.end_offset})"

    # Settings

    @property
    def config(self) -> LogConfig:
        """May be set at any time; applies from the next append on."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._use(config)
        if self.end_offset >= self.flusher.due_at:
            self._owner.schedule_flush(self)

    def _use(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.segment_bytes
        self.flusher.configure(config.flush_messages)
        self._arm_roll()

    # Appending

    def append(
        self, batch: bytearray | memoryview, *, leader_epoch: int, is_client: bool
    ) -> LogAppendInfo:
        """Append one batch of magic 2 as leader: writes offset and epoch into it, keeps nothing.

        The batch was validated, or built here. A client's batch with a producer id is checked
        against the last ones of that producer. Raises Refused: 6 for an epoch that has ended,
        45, 47, 48, 52 about the producer, 56 when the disk will not have it; nothing was written
        then. What may be acknowledged is bounded by :attr:`durable_offset`.
        """
        # After a write that failed nobody knows what the file holds: an append behind it would be
        # taken for a torn tail by recovery, and be cut off with what was acknowledged.
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
        # Four comparisons that are nearly always false; the rule itself is in `_must_roll`.
        if (
            position + size > self._segment_bytes
            or max_timestamp > self._roll_timestamp
            or segment.indexes.is_full
            or last_offset - segment.base_offset > OFFSETS_MAX
        ) and self._must_roll(size, last_offset, max_timestamp):
            self.roll()
            segment, position = self._active, 0
        # Checked after the roll, whose snapshot must not know of this batch, and before the write,
        # which cannot be taken back (docs/spec/log.md §7.2).
        if fields[9] >= 0:
            sent = self._check_producer(fields, batch, is_client=is_client)
            if sent is not None:
                return self._appended_before(sent, fields[5])
        # An epoch is known before its first batch can be read: a follower that asks where it ended
        # must not be told of an older one (KIP-101).
        if leader_epoch != self.epochs.latest:
            self._begin_epoch(leader_epoch, base_offset)
        # The checksum begins at byte 21: these fields are the leader's to write. In place, so that
        # a batch goes from the request to the file without a copy.
        _OFFSET_SIZE_EPOCH.pack_into(batch, 0, base_offset, size - ENVELOPE_BYTES, leader_epoch)
        try:
            segment.append(batch, last_offset, max_timestamp)
        except StorageError as error:
            self.disk_failed(error)
        # At once: else the next batch has the same offsets if something below fails (KAFKA-7866).
        end = self.end_offset = last_offset + 1
        if fields[9] >= 0:
            offsets = base_offset, last_offset, max_timestamp, leader_epoch
            self._note_producer(BatchHeader(0, size, *offsets, fields[5], *fields[9:12]), batch)
        if position == 0:
            self._watch_time()
        if end >= self.flusher.due_at:
            self._owner.schedule_flush(self)
        stamp = max_timestamp if fields[5] & LOG_APPEND_TIME else -1
        return LogAppendInfo(base_offset, last_offset, stamp, False, self.start_offset)

    def _check_producer(
        self, fields: tuple[int, ...], batch: bytearray | memoryview, *, is_client: bool
    ) -> BatchMetadata | None:
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

    def _appended_before(self, sent: BatchMetadata, attributes: int) -> LogAppendInfo:
        stamp = sent.timestamp if attributes & LOG_APPEND_TIME else -1
        return LogAppendInfo(sent.base_offset, sent.last_offset, stamp, True, self.start_offset)

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
        data = memoryview(batches)
        for position, size in iterate(data):
            entry = header_at(data, position, position)
            # The leader's disk or the network may have flipped a bit since the producer's checksum
            # was looked at: copied, it would be damage on every replica.
            if not crc_is_valid(data, position, size):
                raise Refused(ErrorCode.CORRUPT_MESSAGE, f"checksum at offset {entry.base_offset}")
            if entry.base_offset < self.end_offset:
                # A follower that begins at the leader's log start may be given the batch that only
                # ends behind it: DeleteRecords leaves a start inside a batch (KAFKA-6975). Anything
                # else below the end would be a second history.
                start = self.start_offset
                is_empty = self.end_offset == start and not self.size
                if not (is_empty and entry.base_offset < start <= entry.last_offset):
                    raise Refused(
                        ErrorCode.INVALID_RECORD,
                        f"offset {entry.base_offset} is below the end {self.end_offset}",
                    )
                self.truncate_fully(entry.base_offset, start_offset=start)
            self._append_entry(entry, data[position : position + size])

    def _append_entry(self, entry: BatchHeader, data: memoryview) -> None:
        """Append one entry as it is: its offsets are at the log's end or above it.

        Nothing but its place in the log is checked. Raises Refused(56).
        """
        assert entry.base_offset >= self.end_offset
        if self._refusal is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, self._refusal)
        # Older formats name their last offset only: nothing is known of what is before it.
        if entry.base_offset > self.end_offset and data[MAGIC_AT] == 2 and not self.has_holes:
            self._note_holes()
        if self._must_roll(entry.size, entry.last_offset, entry.max_timestamp):
            # Compaction on the leader leaves holes; over a wide one the new segment begins at the
            # batch itself, or its offset would not fit 31 bits above the base.
            is_far = entry.last_offset - self.end_offset > OFFSETS_MAX
            self.roll(entry.base_offset if is_far else self.end_offset)
        try:
            self._active.append(data, entry.last_offset, entry.max_timestamp)
        except StorageError as error:
            self.disk_failed(error)
        self.end_offset = entry.last_offset + 1
        # A follower learns epochs from the batches: elected, it answers for them (KIP-101).
        if entry.leader_epoch > self.epochs.latest:
            self.epochs.assign(entry.leader_epoch, entry.base_offset)
        if entry.producer_id >= 0:
            self._note_producer(entry, data)
        if self._active.size == entry.size:
            self._watch_time()
        if self.end_offset >= self.flusher.due_at:
            self._owner.schedule_flush(self)

    def _note_holes(self) -> None:
        """Have starts know that offsets may be missing. Raises Refused(56).

        Before the batch is written: a kill between the two must not leave a hole without the note.
        """
        with self._storage():
            note_holes(self._files, self.directory)
        self.has_holes = True
        self.names_changed()

    def _note_producer(self, entry: BatchHeader, data: Buffer) -> None:
        """Take over what a batch at the log's end says of the producer that it names."""
        aborted = self.producers.note(entry, data)
        if aborted is not None:
            self._active.indexes.transactions.add(aborted)
            self.has_aborted = True

    # Rolling

    def _arm_roll(self) -> None:
        """The active segment or the settings changed: decide anew when time rolls it."""
        config, active = self._config, self.segments.active
        self._active = active
        active.indexes.configure(config)
        limit = config.segment_ms
        # Only closed segments are compacted: rolled later, a record would wait longer (KIP-354).
        if config.is_compacted:
            limit = min(limit, config.max_compaction_lag_ms)
        # Jitter, so that the partitions of a topic do not all roll, and fsync, in one moment.
        self._roll_ms = limit - self._random.randrange(min(config.segment_jitter_ms, limit) or 1)
        self._watch_time()

    def _watch_time(self) -> None:
        first = self._active.indexes.first_timestamp
        if self._active.size == 0:
            self._roll_timestamp = _NEVER
        else:
            # By the time of records, not by the clock: a follower that catches up on old records
            # would else make segments of a few batches each (docs/spec/log.md §9 P18).
            self._roll_timestamp = first + self._roll_ms if first >= 0 else _ALWAYS

    def _must_roll(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether the active segment must not take a batch like this one."""
        active = self._active
        if last_offset - active.base_offset > OFFSETS_MAX:
            return True
        # An empty segment takes any batch: rolled, its successor would have the same name
        # (KAFKA-6388).
        if active.size == 0:
            return False
        if active.size + size > self._segment_bytes or active.indexes.is_full:
            return True
        first = active.indexes.first_timestamp
        waited = max_timestamp - first if first >= 0 else self._now_ms() - active.created_ms
        return waited > self._roll_ms

    def roll(self, base_offset: int | None = None) -> None:
        """Begin a new segment at the log's end, or at ``base_offset`` above it.

        What lies below is flushed soon. Raises Refused(56).
        """
        base_offset = self.end_offset if base_offset is None else base_offset
        old = self._active
        assert base_offset > old.base_offset, f"{self}: rolled an empty segment"
        # The last time index entry is the greatest time of the segment: a start trusts that of
        # closed segments without reading their batches.
        old.indexes.finish()
        self.producers.end_offset = self.end_offset
        try:
            self.segments.roll(base_offset, self.producers, self._now_ms())
        except StorageError as error:
            self.disk_failed(error)
        self._arm_roll()
        log.info("rolled segment base=%d bytes=%d log=%s", base_offset, old.size, self.directory)
        self._owner.schedule_flush(self)

    # Truncation

    def may_truncate_to(self, offset: int) -> bool:
        """Whether :meth:`truncate_to` may be called at once: no file says that more is durable.

        Else have the recovery points written down, and ask again. A file system may destroy what
        is cut and keep the old size, and a start would not look. Raises Refused(56).
        """
        with self._storage():
            return follower_truncation.may_truncate_to(self, offset)

    def truncate_to(self, offset: int) -> None:
        """Drop ``offset`` and all after it, and the whole batch that holds it. Raises Refused(56).

        Only when it :meth:`may_truncate_to`.
        """
        with self._storage():
            follower_truncation.truncate_to(self, offset)

    def truncate_fully(self, offset: int, *, start_offset: int | None = None) -> None:
        """Drop everything and begin at ``offset``. Raises Refused(56).

        ``start_offset`` above ``offset`` lies inside the first batch to come.
        """
        with self._storage():
            follower_truncation.truncate_fully(self, offset, start_offset)

    def restart_segments(self, offset: int) -> tuple[Sequence[Segment], list[Path]]:
        """Drop every segment for an empty one at ``offset``; :meth:`replaced` is next."""
        return self.segments.restart(offset, self._now_ms())

    def replaced(self, end_offset: int, gone: Iterable[Segment], renamed: Iterable[Path]) -> None:
        """The list of segments was changed and the log now ends at ``end_offset``.

        ``gone`` are closed as soon as nobody reads them; the ``renamed`` files are unlinked later.
        A flush is asked for, which makes that durable.
        """
        self.end_offset = end_offset
        self._arm_roll()
        self._removed(gone, renamed)
        self._owner.schedule_flush(self)

    def _removed(self, gone: Iterable[Segment], renamed: Iterable[Path]) -> None:
        """``gone`` left the list: close them as soon as nobody reads them.

        The ``renamed`` files are unlinked later.
        """
        for segment in gone:
            segment.retire()
        self.names_changed()
        self._owner.discard(renamed, self._config.file_delete_delay_ms)

    def names_changed(self) -> None:
        """Have the next flush make durable which names there are in the directory."""
        self._active.is_new = True
        self.flusher.note_names()

    # Losing the oldest

    def advance_start(self, offset: int) -> None:
        """Nothing below ``offset`` is to be read any more; a lower one changes nothing.

        The files go with the next look for old segments. Never above the high watermark.
        """
        assert offset <= self.end_offset
        if offset > self.start_offset:
            self.start_offset = offset
            # An epoch that ended below the start would send a follower there to compare.
            self.epochs.truncate_from_start(offset)

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
        """Delete so many segments, of which ``flusher.flush_lock`` is held. Raises Refused(56).

        All of them means that an empty one takes over at the log's end. Readers that hold a
        segment go on; the files are unlinked later.
        """
        with self._storage():
            self._delete_oldest(count)

    def _delete_oldest(self, count: int) -> None:
        view = self.segments.view
        if count == len(view.segments):
            assert view.segments[-1].size, f"{self}: an empty active segment stays"
            if self.is_full:
                count -= 1  # no room for another one; the next pass finds some
            else:
                self.roll()
                view = self.segments.view
        if not count:
            return
        # The start moves before the files go, or readers would be sent to what is not there.
        self.advance_start(view.bases[count])
        gone = self.segments.remove_oldest(count)
        self.flusher.skip_to(self.start_offset)
        self._removed(gone, self.segments.rename_deleted(gone))

    def replace_segments(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Let ``new`` take the place of ``old``, which compaction wrote it from.

        Raises Refused(56). ``segments.holds(old)`` is true, and what is in ``old`` lies below the
        recovery point. The files of ``new`` are complete and durable, under their names plus
        ``.swap``. Readers that hold an old segment go on; its files are unlinked later.
        """
        with self._storage():
            renamed = self.segments.replace(
                new,
                old,
                end_offset=self.end_offset,
                recovery_point=self.recovery_point,
                config=self._config,
            )
            self._removed(old, renamed)

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
        # A marker above the mark may still be lost with its leader: until it is committed, its
        # transaction counts as open (docs/spec/log.md §7.3).
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
            return log_reader.aborted(self.segments.view, offset, count, self.end_offset)

    def offset_for_time(
        self, timestamp: int, end: int, search: Search | None = None
    ) -> TimedOffset | None:
        """The first record at ``timestamp`` or later; None when there is none below ``end``.

        Raises Refused as :meth:`read`, and LongBatch where ``search`` bounds the work.
        """
        with self._storage():
            return log_reader.first_at_or_after(
                self.segments.view, timestamp, self.start_offset, end, search or Search()
            )

    def max_timestamp_offset(self, end: int, search: Search | None = None) -> TimedOffset | None:
        """The first record with the greatest timestamp; None when that is not below ``end``.

        Raises Refused as :meth:`read`, and LongBatch where ``search`` bounds the work.
        """
        with self._storage():
            return log_reader.newest(self.segments.view, self.start_offset, end, search or Search())

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
        return log_reader.offsets_before(self.segment_offsets(), timestamp, count, high_watermark)

    # Leader epochs

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """The leader of ``epoch`` writes from ``start_offset`` on; said on election.

        Source: docs/spec/log.md §9 P42.
        """
        self.epochs.assign(epoch, start_offset)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The newest epoch at or below ``epoch`` and where it ends; (-1, -1) when unknown."""
        return self.epochs.end_offset(epoch, self.end_offset)

    # Durability

    @property
    def recovery_point(self) -> int:
        """The first offset that a power cut may take."""
        return self.flusher.recovery_point

    @property
    def listed_recovery_point(self) -> int:
        """What a start would trust: at most :attr:`recovery_point`, unless that was lowered."""
        return self._owner.listed_recovery_point(self)

    @property
    def durable_offset(self) -> int:
        """What lies below may be acknowledged: at most flush.messages - 1 records are unsafe."""
        return min(self.end_offset, self.flusher.due_at - 1)

    @property
    def on_durable(self) -> list[Callable[[], None]]:
        """Callbacks for when :attr:`durable_offset` may have moved up."""
        return self.flusher.on_durable

    @property
    def size(self) -> int:
        """Bytes in all segments, without indexes."""
        return sum(segment.size for segment in self.segments.view.segments)

    async def flush(self) -> None:
        """Make what was appended so far safe from a power cut. Raises Refused(56)."""
        with self._storage():
            await self.flusher.flush(self._unsafe_segments, lambda: self.end_offset)

    def _unsafe_segments(self) -> list[Segment]:
        """Also one that ends at the recovery point: its last index entry came with the roll."""
        view = self.segments.view
        return list(view.segments[max(0, view.floor(self.recovery_point - 1)) :])

    async def close(self) -> None:
        """Write down everything a clean start needs, then let the files go. Raises Refused(56)."""
        self.producers.end_offset = self.end_offset
        try:
            with self._storage():
                self._active.indexes.finish()
                self.snapshots.take(self.producers, self.end_offset)
        except BaseException:  # not finally: awaiting there, compiled code keeps the error for ever
            await self.flush()  # batches need no more space, other than a snapshot
            raise
        await self.flush()
        self.retire()

    def retire(self) -> None:
        """Let the files go as they are; the log must not be used any more."""
        # Before the files go: whoever compacts or keeps a checkpoint must not take the next log of
        # that name for this one.
        for callback in tuple(self.before_truncation):
            callback(-1)
        self._refusal = self._refusal or "the log is closed"
        self.is_offline = True
        self.flusher.abandon()
        for segment in self.segments.view.segments:
            segment.retire()

    # Failure

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """What the disk does to us, as what a peer is told."""
        if self.is_offline:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, self._refusal or "")
        try:
            yield
        except (CorruptEntry, IndexLost, StorageError) as error:
            self.disk_failed(error)

    def disk_failed(self, error: CorruptEntry | IndexLost | StorageError) -> NoReturn:
        """Do what the failure asks for, then raise Refused with what a peer is told."""
        if isinstance(error, IndexLost):
            self._owner.repair(self, error.segment)
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if isinstance(error, CorruptEntry):
            if not isinstance(error, Quarantined):
                log.error("found a corrupt log directory=%s %s", self.directory, error)
                self._owner.inspect(self)
            raise Refused(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        self.note_failure(error)
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def ask_inspection(self) -> None:
        """Have suspect segments verified soon."""
        self._owner.inspect(self)

    def note_damage(self) -> None:
        """Write down what is quarantined. Raises Refused(56)."""
        segments = self.segments.view.segments
        notes = [
            QuarantineEntry(segment.base_offset, gap)
            for segment in segments
            for gap in segment.gaps
        ]
        with self._storage():
            write_quarantine(self._files, self.directory, notes)

    def note_failure(self, error: StorageError) -> None:
        """Stop taking appends when the disk is full; else the directory goes offline.

        Nothing when it is busy: the next try may go well.
        """
        if self.is_offline:
            return
        # Three kinds of trouble. Without a descriptor nothing was written or lost. A full disk
        # takes no bytes but keeps those it has. After anything else, a failed fsync above all, the
        # kernel may have dropped dirty pages and a second fsync would succeed all the same: nothing
        # on that disk can be believed (docs/spec/log.md §3.1).
        if error.is_busy:
            log.warning("had no descriptor left: %s", error)
        elif error.is_full:
            log.error("stopped taking appends, the disk is full: %s", error)
            self.is_full, self._refusal = True, str(error)
        else:
            self._owner.storage_failed(self, error)

    def take_offline(self, reason: str) -> None:
        """The directory failed: refuse everything from now on with KAFKA_STORAGE_ERROR."""
        self.is_offline, self._refusal = True, reason

    def verify_again(self) -> Generator[None, None, None]:
        """Read the active segment again after the disk was full, then take appends again.

        Runs in slices, the caller decides when the next one does. Raises Refused(56) when bytes
        are gone that had been written.
        """
        assert self.is_full
        segment, end_offset = self._active, self.end_offset
        cuts = segment.cuts
        segment.hold()
        try:
            with self._storage():
                if self._files.size(segment.path(".log")) < segment.size:
                    raise StorageError(segment.path(".log"), "is shorter than what was written")
                # A write that failed half-way leaves a torn batch behind the end: verified from the
                # disk, not from what this process believes.
                trust = Trust(kept=self.recovery_point, upper=end_offset)
                recovered = yield from recover_segment(segment, trust)
                if segment is not self._active or segment.cuts != cuts:
                    return  # truncated meanwhile: the next look begins anew
                if recovered.next_offset != end_offset or recovered.reason:
                    raise StorageError(segment.path(".log"), f"lost batches below {end_offset}")
        finally:
            segment.release()
        if self.is_offline:
            return  # deleted meanwhile, or its directory failed
        self._arm_roll()
        self.is_full, self._refusal = False, None
        if self.end_offset >= self.flusher.due_at:
            self._owner.schedule_flush(self)
        log.info("takes appends again log=%s end_offset=%d", self.directory, end_offset)
