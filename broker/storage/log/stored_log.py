"""A log on disk and its care: settings, rolling, flushing, failing, closing.

All methods run on the event loop; only a flush works in a thread.
Source: docs/spec/log.md §2.8, §3.1 and §3.2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final, NoReturn

from barnabas.broker.settings.log_config import FOREVER, LogConfig
from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.recovery.quarantine import Note, write_notes
from barnabas.broker.storage.recovery.segment_recovery import Trust, recover_segment
from barnabas.broker.storage.segment.batch_headers import CorruptEntry, Entry, Quarantined
from barnabas.broker.storage.segment.segment import IndexLost, Segment
from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import Buffer

from .flushing import Flusher
from .log_parts import LogOwner, LogParts
from .segments import Segments

log = logging.getLogger(__name__)

_NEVER: Final = 2 * FOREVER
_ALWAYS: Final = -2
"""Below every timestamp: each append must look at the clock."""


class StoredLog:
    """What a :class:`~barnabas.broker.storage.log.log.Log` is made of.

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
        "before_cut",
        "directory",
        "end_offset",
        "epochs",
        "flusher",
        "has_aborted",
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
        parts: LogParts,
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
        self.segments = Segments(parts.segments)
        self.start_offset = parts.start_offset
        self.end_offset = parts.end_offset
        self.epochs = parts.epochs
        self.producers = parts.producers
        self.snapshots = parts.snapshots
        self.has_aborted = any(len(each.indexes.transactions) for each in parts.segments)
        """A transaction was aborted, perhaps in a segment that is gone by now."""
        self.flusher = Flusher(
            files, directory, parts.recovery_point, parts.epochs, parts.snapshots
        )
        self.is_full = False
        """The disk was full: nothing is appended until :meth:`verify_again` has ended."""
        self.is_offline = False
        """The directory failed: nothing works any more."""
        self.is_being_cleaned = False
        """Compaction has the closed segments: retention leaves the log alone until it is done."""
        self.before_cut: list[Callable[[int], None]] = []
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

    def _arm_roll(self) -> None:
        """The active segment or the settings changed: decide anew when time rolls it."""
        config, active = self._config, self.segments.active
        self._active = active
        active.indexes.configure(config)
        limit = config.segment_ms
        if config.is_compacted:
            limit = min(limit, config.max_compaction_lag_ms)
        self._roll_ms = limit - self._random.randrange(min(config.segment_jitter_ms, limit) or 1)
        self._watch_time()

    def _watch_time(self) -> None:
        first = self._active.indexes.first_timestamp
        if self._active.size == 0:
            self._roll_timestamp = _NEVER
        else:
            self._roll_timestamp = first + self._roll_ms if first >= 0 else _ALWAYS

    def _must_roll(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether the active segment must not take a batch like this one."""
        active = self._active
        if last_offset - active.base_offset > OFFSETS_MAX:
            return True
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
        old.indexes.finish()
        self.producers.end_offset = self.end_offset
        try:
            if old.is_new:
                # A segment's name must never be lost while its successor's is kept. This blocks,
                # but only when no flush has ended since the last roll, which asked for one.
                self._files.sync_directory(self.directory)
                old.is_new = False
            self.snapshots.take(self.producers, base_offset)
            segment = self.new_segment(base_offset)
        except StorageError as error:
            self.disk_failed(error)
        self.segments.add(segment)
        self._arm_roll()
        log.info("rolled segment base=%d bytes=%d log=%s", base_offset, old.size, self.directory)
        self._owner.schedule_flush(self)

    def append_entry(self, entry: Entry, data: memoryview) -> None:
        """Append one entry as it is: its offsets are at the log's end or above it.

        Nothing but its place in the log is checked. Raises Refused(56).
        """
        assert entry.base_offset >= self.end_offset
        if self._refusal is not None:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, self._refusal)
        if self._must_roll(entry.size, entry.last_offset, entry.max_timestamp):
            is_far = entry.last_offset - self.end_offset > OFFSETS_MAX
            self.roll(entry.base_offset if is_far else self.end_offset)
        try:
            self._active.append(data, entry.last_offset, entry.max_timestamp)
        except StorageError as error:
            self.disk_failed(error)
        self.end_offset = entry.last_offset + 1
        if entry.leader_epoch > self.epochs.latest:
            self.epochs.assign(entry.leader_epoch, entry.base_offset)
        if entry.producer_id >= 0:
            self.note_producer(entry, data)
        if self._active.size == entry.size:
            self._watch_time()
        if self.end_offset >= self.flusher.due_at:
            self._owner.schedule_flush(self)

    def note_producer(self, entry: Entry, data: Buffer) -> None:
        """Take over what a batch at the log's end says of the producer that it names."""
        aborted = self.producers.note(entry, data)
        if aborted is not None:
            self._active.indexes.transactions.add(aborted)
            self.has_aborted = True

    def new_segment(self, base_offset: int) -> Segment:
        """An empty segment on disk, not yet in the log. Raises StorageError."""
        return Segment.create(self._files, self.directory, base_offset, self._now_ms())

    def replaced(self, end_offset: int, gone: Iterable[Segment], renamed: Iterable[Path]) -> None:
        """The list of segments was changed and the log now ends at ``end_offset``.

        ``gone`` are closed as soon as nobody reads them; the ``renamed`` files are unlinked later.
        A flush is asked for, which makes that durable.
        """
        self.end_offset = end_offset
        self._arm_roll()
        self.removed(gone, renamed)
        self._owner.schedule_flush(self)

    def removed(self, gone: Iterable[Segment], renamed: Iterable[Path]) -> None:
        """``gone`` left the list: close them as soon as nobody reads them.

        The ``renamed`` files are unlinked later.
        """
        for segment in gone:
            segment.retire()
        self._active.is_new = True  # so that the next flush makes the renames durable
        self._owner.discard(renamed, self._config.file_delete_delay_ms)

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
        finally:
            await self.flush()  # batches need no more space, other than a snapshot
        self.retire()

    def retire(self) -> None:
        """Let the files go as they are; the log must not be used any more."""
        for told in tuple(self.before_cut):
            told(-1)
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
        notes = [Note(each.base_offset, gap) for each in segments for gap in each.gaps]
        with self._storage():
            write_notes(self._files, self.directory, notes)

    def note_failure(self, error: StorageError) -> None:
        """Stop taking appends when the disk is full; else the directory goes offline.

        Nothing when it is busy: the next try may go well.
        """
        if self.is_offline:
            return
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
