"""One segment of a log: a file of batches, with the indexes that find them.

    <base>.log        | batch | batch | batch | ... |      back to back, nothing between
    <base>.index      (offset, position)     of a batch every index.interval.bytes, for fetches
    <base>.timeindex  (timestamp, offset)    where the greatest time grew, for ListOffsets
    <base>.txnindex   aborted transactions   whose markers are in this segment; often no file

A search goes to the greatest index entry that is not above the offset and on from header to header.
Only the bytes of batches are the truth: every index can be made again from them, and is, when a
search finds that it leads nowhere.

Source: docs/spec/log.md §2.1, §2.2, §4.2 (use counts) and §6.2 (finding a batch).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from barnabas.broker.storage.files import Data, File, Files
from barnabas.protocol.records.header import HEADER_BYTES

from .batch_headers import BatchHeader, CorruptEntry, Quarantined, Span, header_at
from .checked_ranges import CheckedRanges
from .gaps import Gaps
from .open_files import open_files
from .segment_indexes import OFFSETS_MAX, PreparedSync, SegmentIndexes

log = logging.getLogger(__name__)

SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
REPAIR_AT_ONCE_BYTES: Final = 4 << 20
"""A segment of this size has new indexes within milliseconds; a larger one makes readers wait."""
_HINTS_MAX: Final = 64
_use_count = threading.RLock()
"""Guards use counts and ``open_files``: a flush in a thread ends its use there. Reentrant, since
:meth:`Segment.hold` may have to open the file."""


class IndexLost(Exception):  # noqa: N818 - what has happened
    """The indexes of a large segment are bad and must be made again before it is searched."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment.path('.index')}: is being made again")
        self.segment = segment


def stem(base_offset: int) -> str:
    """The file name of a segment without its suffix."""
    return f"{base_offset:020d}"


class Segment:
    """Batches from ``base_offset`` on, in one file.

    Offsets in and out are absolute. Use counts let a reader or a flush in a thread keep the file
    open while the segment leaves the log (:meth:`hold`, :meth:`release`, :meth:`retire`). Closed
    too early, its descriptor's number would soon be another file's, and a read in flight would
    return bytes of that one (docs/spec/log.md §4.2).
    """

    __slots__ = (
        "_file",
        "_files",
        "_hints",
        "_is_index_lost",
        "_is_retired",
        "_synced_bytes",
        "_uses",
        "base_offset",
        "checked",
        "created_ms",
        "cuts",
        "directory",
        "gaps",
        "indexes",
        "is_new",
        "is_suspect",
        "size",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: int,
        *,
        size: int,
        created_ms: int,
        is_new: bool = False,
    ) -> None:
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        """Bytes that readers may see."""
        self.cuts = 0  # how often the end was cut off, and other bytes may have come
        self.created_ms = created_ms
        """Wall clock when the segment was created or opened."""
        self.is_new = is_new
        """The directory has not been fsynced since the file was created."""
        self.indexes = SegmentIndexes(
            files,
            directory / stem(base_offset),
            base_offset,
            self._index_lost,
            is_empty=is_new,
        )
        self._is_index_lost = False
        self._file: File | None = None
        self._hints: dict[int, int] = {}
        """Offset to the position where a scan for it may begin; see :meth:`hint`."""
        self._uses = 0
        self._synced_bytes = size
        """The size at the last fsync: with more bytes now, the descriptor stays open."""
        self._is_retired = False
        self.checked = CheckedRanges(size)
        self.gaps = Gaps()
        """Bytes that cannot be read; see :meth:`quarantine`."""
        self.is_suspect = False
        """A reader met bytes that are no batch: how far they reach is to be found out."""

    @classmethod
    def create(cls, files: Files, directory: Path, base_offset: int, now_ms: int) -> Segment:
        """An empty segment; files left over under its name are removed first.

        An index that stayed would point into batches that are not there. Nothing is fsynced.
        """
        for suffix in SUFFIXES:
            files.unlink(directory / (stem(base_offset) + suffix))
        segment = cls(files, directory, base_offset, size=0, created_ms=now_ms, is_new=True)
        segment._opened()
        return segment

    def path(self, suffix: str) -> Path:
        """Of the file with that suffix, dot included."""
        return self.directory / (stem(self.base_offset) + suffix)

    def append(self, data: Data, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end; a StorageError leaves the segment as it was."""
        # The size moves when the bytes are in the file: a reader between the two sees neither.
        position = self.size
        (self._file or self._opened()).append(data)
        size = len(data)
        self.size = position + size
        self.indexes.note(position, size, last_offset, max_timestamp)

    def read(self, position: int, count: int) -> bytes:
        """Bytes of the file as they are; fewer than ``count`` at its end only."""
        return (self._file or self._opened()).read(position, count)

    def send(self, descriptor: int, position: int, count: int) -> int:
        """As :meth:`File.send`."""
        return (self._file or self._opened()).send(descriptor, position, count)

    def entries(self, position: int = 0) -> Iterator[BatchHeader]:
        """The headers from ``position`` to the end, without gaps; raises CorruptEntry."""
        return self._entries(position, self.size)

    def _entries(self, position: int, end: int) -> Iterator[BatchHeader]:
        return self.gaps.entries(self.read, position, end)

    def quarantine(self, gaps: Gaps) -> None:
        """Nothing in these bytes is a batch; what lies around them is served."""
        self.gaps, self.is_suspect = gaps, False
        self._hints.clear()

    def find(self, offset: int) -> Span | None:
        """The first batch that ends at ``offset`` or after; None when all end before.

        Raises CorruptEntry when the log itself cannot be read there, IndexLost when an index leads
        nowhere and the segment is too large to make it again on the way.
        """
        if (hinted := self._hints.get(offset)) is not None:
            return self._scan(hinted, offset)
        if self._is_index_lost:
            raise IndexLost(self)
        # Refused rather than skipped: a reader that went on behind the gap would lose records
        # without a word.
        if gap := self.gaps.at(offset):
            raise Quarantined(gap.position, f"offset {offset} is quarantined")
        try:
            found = self._search(offset)
        except CorruptEntry:
            self.is_suspect = True
            raise
        if found:
            self.hint(offset, found.position)
        return found

    def find_now(self, offset: int) -> Span | None:
        """As :meth:`find`, but whoever asks would rather block than be told IndexLost."""
        try:
            return self.find(offset)
        except IndexLost:
            self.rebuild_indexes()
            return self.find(offset)

    def _search(self, offset: int) -> Span | None:
        position = self.indexes.position_of(offset)
        try:
            return self._scan(position, offset, is_index_checked=position == 0)
        except CorruptEntry:
            if position == 0:
                raise
        # The index, not the log, is to blame when a scan from the segment's start goes well.
        # (docs/spec/log.md §9 P2)
        log.warning("found an index that leads nowhere path=%s", self.path(".index"))
        self._index_lost()
        return self._scan(self.indexes.position_of(offset), offset)

    def _index_lost(self) -> None:
        """Make the indexes again at once, or have that done: raises IndexLost."""
        if self.size > REPAIR_AT_ONCE_BYTES:
            self._is_index_lost = True
            raise IndexLost(self)
        self.rebuild_indexes()

    def repair(self) -> Generator[None, None, bool]:
        """Make the indexes again after IndexLost, pausing now and then.

        False when the segment was truncated or left its log meanwhile.
        """
        # Held: the segment may leave its log, and its file be closed, between two slices.
        self.hold()
        try:
            is_done = yield from self.indexes.rebuild_in_slices(self._entries, lambda: self.size)
        finally:
            self.release()
        if is_done:
            self._hints.clear()
            self._is_index_lost = False
        return is_done

    def _scan(self, position: int, offset: int, *, is_index_checked: bool = True) -> Span | None:
        for span in self.gaps.spans(self.read, position, self.size):
            # It passes for a good batch, and to begin here would skip those that come before.
            if not is_index_checked and span.base_offset > offset:
                raise CorruptEntry(span.position, "the index points behind the offset")
            is_index_checked = True
            # An index entry has 31 bits for it: such a batch comes from a damaged header.
            if span.last_offset - self.base_offset > OFFSETS_MAX:
                raise CorruptEntry(span.position, f"offset {span.last_offset}")
            if span.last_offset >= offset:
                return span
        return None

    def hint(self, offset: int, position: int) -> None:
        """Remember that a batch starts at ``position`` and none before it holds ``offset``.

        Readers that follow the log's end then find their place without a search.
        """
        # Bounded without a clock or a list of uses: who follows the end makes its hint anew.
        if len(self._hints) >= _HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def forget_hints(self) -> None:
        """The file is about to change below its end."""
        self._hints.clear()

    def whole_batches(self, position: int, bytes_max: int) -> int:
        """Where the last batch ends that lies in ``bytes_max`` bytes from a batch's start.

        ``position`` itself when not even one fits. Looks at the headers behind the last index entry
        only: at all of them a fetch of many small batches would be slow.
        """
        limit = self.gaps.readable_end(position, position + bytes_max)
        indexed = self.indexes.position_below(limit)
        if indexed > position:
            try:
                return self._last_end(indexed, limit)
            except CorruptEntry:
                log.warning("did without a bad index path=%s", self.path(".index"))
        try:
            return self._last_end(position, limit)
        except CorruptEntry:
            self.is_suspect = True
            raise

    def check_offsets(self, position: int, end: int, upper: int) -> None:
        """Look at the headers between two positions once, and at the one behind.

        Raises CorruptEntry for an offset that contradicts another, or one of ``upper`` or above.
        """
        # No checksum covers an offset: a flipped bit there is seen only beside the neighbours.
        part = self.checked.unchecked(position, end)
        if part is None:
            return
        try:
            for span in self.gaps.spans(self.read, part[0], self.size):
                if span.last_offset >= upper:
                    raise CorruptEntry(span.position, f"offset {span.last_offset} at {upper}")
                if span.position >= part[1]:
                    break
        except CorruptEntry:
            self.is_suspect = True
            raise
        self.checked.add(position, end)

    def _last_end(self, position: int, limit: int) -> int:
        """Where the last batch ends at ``limit`` or before; the next reader's place is noted."""
        end, next_offset = position, -1
        for span in self.gaps.spans(self.read, end, self.size):
            if span.position + span.size > limit:
                break
            end = span.position + span.size
            next_offset = span.last_offset + 1
        if next_offset >= 0:
            self.hint(next_offset, end)
        return end

    def rebuild_indexes(self) -> None:
        """Make both indexes from the headers, as far as these can be read."""
        self._hints.clear()
        self.indexes.rebuild(self.entries())
        self._is_index_lost = False

    def load_tail(self) -> int:
        """Read what follows the last index entries; returns the offset after the last batch.

        Raises CorruptEntry when the tail is not made of whole entries in order.
        """
        indexes = self.indexes
        try:
            indexes.load_max_timestamp()
        except IndexLost:
            self.rebuild_indexes()
        last_offset = self.base_offset - 1
        for entry in self.entries(indexes.last_position):
            if entry.last_offset <= last_offset:
                raise CorruptEntry(entry.position, "offsets do not increase")
            last_offset = entry.last_offset
            indexes.notice_time(entry.max_timestamp, last_offset)
        indexes.resume(self.size, self.first_timestamp())
        return max(last_offset + 1, self.gaps.end_offset)

    def first_timestamp(self) -> int:
        """Of the first batch; -1 when there is none, or none that can be read."""
        is_readable = self.gaps.readable_end(-1, self.size) > 0
        return header_at(self.read(0, HEADER_BYTES)).max_timestamp if is_readable else -1

    @property
    def largest_timestamp(self) -> int:
        """Of a record; of the file's last change when no record has a timestamp.

        In ms of the wall clock. A timestamp of -1 taken as it is would make retention delete the
        segment within minutes (docs/spec/log.md §9 P17).
        """
        timestamp = self.indexes.max_timestamp
        return timestamp if timestamp >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        """Wall clock of the file's last change."""
        return self._files.modified_ms(self.path(".log"))

    def cut(self, size: int) -> None:
        """Drop the bytes from ``size`` on; the indexes must not point there any more."""
        assert 0 <= size <= self.size, f"{self.path('.log')}: a cut at {size} would make it longer"
        # Hints point at bytes that may be others soon; senders of a FileSlice compare `cuts`.
        self._hints.clear()
        self.cuts += 1
        (self._file or self._opened()).truncate(size)
        self.size = size
        self.checked.cut(size)
        # Not durable until the next fsync: no descriptor may be closed before (the kernel tells of
        # a failed write only to those that were there).
        self._synced_bytes = -1
        self.gaps = self.gaps.below(size)

    def truncate(self, offset: int) -> int:
        """Drop the batches that end at ``offset`` or after; returns the offset after the rest.

        A batch is never split, so that the rest may end below ``offset`` (docs/spec/log.md §3.6).
        """
        if found := self.gaps.at(offset) or self.find_now(offset):
            # Indexes first: an entry that points behind the end of the file is a search that fails.
            self.indexes.truncate(offset)
            self.cut(found.position)
        return self.load_tail()

    def prepare_sync(self) -> PreparedSync:
        """What a thread must do to make the present content durable.

        ``sync`` must be called exactly once: the segment is held until then.
        """
        # The size of now: what is appended while the thread works may not be in its fsync.
        file, size = self._file or self._opened(), self.size
        state, save = self.indexes.prepare_save()
        self.hold()

        def sync() -> None:
            try:
                file.sync_now()
                self._synced_bytes = size
            finally:
                self.release()

        return PreparedSync(sync, save, state)

    def _opened(self) -> File:
        assert not self._is_retired, self.path(".log")
        self._file = file = self._files.open_append(self.path(".log"))
        with _use_count:
            open_files.opened(self)
        return file

    def close_if_idle(self) -> bool:
        """Give the descriptor back unless somebody holds the segment or bytes are not synced.

        The next use opens the file again. Bytes that were never fsynced through this descriptor
        could be lost to a failed write of which no later descriptor is told.
        """
        if self._uses or self._synced_bytes != self.size or self._file is None:
            return False
        self._file.close()
        self._file = None
        return True

    def hold(self) -> None:
        """Keep the file open until the matching :meth:`release`, which any thread may call."""
        with _use_count:
            if self._file is None:
                self._opened()
            self._uses += 1

    def release(self) -> None:
        """End a :meth:`hold`; the last one closes a retired segment."""
        with _use_count:
            self._uses -= 1
            assert self._uses >= 0
            self._close_if_unused()

    def retire(self) -> None:
        """The segment left its log: close the file as soon as nobody uses it."""
        # Readers, and a flush in a thread, go on with the file that they hold; the name is free.
        with _use_count:
            self._is_retired = True
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._is_retired and self._uses == 0 and self._file is not None:
            open_files.closed(self)
            self._file.close()
            self._file = None

    def rename_swapped(self) -> None:
        """Give the files their final names: they end in ``.swap``, as compaction left them."""
        # The log first. After a kill a start renames the indexes that follow a finished log, while
        # one that is finished before its log would be removed as one of the replaced segment.
        for suffix in SUFFIXES:
            path = self.path(suffix)
            swap = path.with_name(path.name + SWAP)
            if self._files.exists(swap):
                self._files.rename(swap, path)

    def rename_deleted(self) -> list[Path]:
        """Move the files out of the way of their successors; returns the new names."""
        renamed = []
        for suffix in SUFFIXES:
            path = self.path(suffix)
            # A kill between two of them is no harm: a start removes what ends in `.deleted`, and an
            # index without its log.
            if self._files.exists(path):
                target = path.with_name(path.name + DELETED)
                self._files.rename(path, target)
                renamed.append(target)
        return renamed
