"""Both indexes of one segment, kept while batches are written and made again when they are bad.

The files are written when the segment is flushed, never before: a segment whose indexes are not
on disk is one that recovery would rebuild anyway (docs/spec/log.md §3.4).
Source: docs/spec/log.md §2.3, §2.4 and §3.3 step 3; §9 pitfalls P1 and P2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.storage.files import Files, StorageError

from .batch_headers import BatchHeader, CorruptEntry
from .offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from .offset_index import OffsetIndex
from .time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from .time_index import TimeIndex
from .transaction_index import SUFFIX as TRANSACTION_SUFFIX
from .transaction_index import TransactionIndex

log = logging.getLogger(__name__)

OFFSETS_MAX: Final = 2**31 - 1
"""The greatest offset relative to a segment's base, and the greatest size of its file."""

_ENTRIES_BETWEEN_PAUSES: Final = 64


class SavedState(NamedTuple):
    """What :meth:`SegmentIndexes.prepare_save` wrote, to be told to ``mark_saved``."""

    generation: int
    offset_entries: int
    time_entries: int
    aborted: int


class PreparedSync(NamedTuple):
    """The three parts of making a segment durable, in order."""

    sync: Callable[[], None]
    """Fsync the batches; in a thread."""
    save: Callable[[], None]
    """Write and fsync the index files by their names; in a thread."""
    state: SavedState
    """For ``indexes.mark_saved``, on the loop, when both have succeeded."""


class SegmentIndexes:
    """Where offsets and timestamps are in one ``.log`` file; offsets in and out are absolute."""

    __slots__ = (
        "_base_offset",
        "_entries_max",
        "_files",
        "_generation",
        "_interval",
        "_is_on_disk",
        "_offsets",
        "_rebuild",
        "_stem",
        "_times",
        "_unindexed",
        "first_timestamp",
        "is_full",
        "max_timestamp",
        "max_timestamp_offset",
        "tail_position",
        "transactions",
    )

    def __init__(
        self,
        files: Files,
        stem: Path,
        base_offset: int,
        rebuild: Callable[[], None],
        *,
        is_empty: bool,
    ) -> None:
        self._files = files
        self._stem = stem
        self._rebuild = rebuild
        self._base_offset = base_offset
        self._offsets = OffsetIndex() if is_empty else None
        self._times = TimeIndex() if is_empty else None
        self.transactions = TransactionIndex(
            files, stem.with_suffix(TRANSACTION_SUFFIX), is_empty=is_empty
        )
        """The aborted ones; rebuilding the other two leaves it alone (docs/spec/log.md §9 P12)."""
        self._is_on_disk = not is_empty
        self._interval = 4096
        self._entries_max = (1, 1)
        self._unindexed = 0
        self._generation = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        """Last offset of the earliest batch that carries the greatest timestamp."""
        self.first_timestamp = -1
        """Greatest timestamp of the first batch; -1 when it has none."""
        self.tail_position = 0
        """Where the last indexed batch starts, as :meth:`are_sound` saw it."""
        self.is_full = False
        """An index cannot take another entry: time to roll."""

    def configure(self, config: LogConfig) -> None:
        """Take the index settings over, from the next batch on."""
        self._interval = config.index_interval_bytes
        self._entries_max = (
            max(1, config.segment_index_bytes // OFFSET_ENTRY_BYTES),
            max(1, config.segment_index_bytes // TIME_ENTRY_BYTES - 1),
        )
        self._notice_full()

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Index a batch that the file holds; batches come in the order of the file."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        if self._unindexed > self._interval:
            self.offsets.add(last_offset - self._base_offset, position)
            self.finish()
            self._unindexed = 0
            self._notice_full()
        self._unindexed += size

    def finish(self) -> None:
        """Add the last time index entry: before a roll, a close or the end of recovery."""
        self.times.add(self.max_timestamp, self.max_timestamp_offset - self._base_offset)

    def _notice_full(self) -> None:
        self.is_full = self._offsets is not None and (
            len(self._offsets) >= self._entries_max[0] or len(self.times) >= self._entries_max[1]
        )

    def position_of(self, offset: int) -> int:
        """A batch's start before which no batch holds ``offset`` or more."""
        return self.offsets.lookup(max(0, offset - self._base_offset))[1]

    def position_below(self, position: int) -> int:
        """The greatest known start of a batch that is not above ``position``."""
        return self.offsets.position_below(position)

    def offset_from(self, position: int) -> int | None:
        """The last offset of the first indexed batch that starts at ``position`` or behind it."""
        offset = self.offsets.offset_from(position)
        return None if offset is None else self._base_offset + offset

    @property
    def last_position(self) -> int:
        """Of the last offset index entry; 0 when there is none."""
        return self.offsets.lookup(OFFSETS_MAX)[1]

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which every record is at or before ``timestamp``."""
        return self._base_offset + self.times.lookup(timestamp)[1]

    @property
    def offsets(self) -> OffsetIndex:
        """The offset index; loaded when first needed."""
        if self._offsets is None:
            self._load()
        assert self._offsets is not None
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        """The time index; loaded when first needed."""
        if self._times is None:
            self._load()
        assert self._times is not None
        return self._times

    def _load(self) -> None:
        offset_bytes = self._read(".index", OFFSET_ENTRY_BYTES)
        time_bytes = self._read(".timeindex", TIME_ENTRY_BYTES)
        if offset_bytes is not None and time_bytes is not None:
            offsets, times = OffsetIndex(offset_bytes), TimeIndex(time_bytes)
            if offsets.is_plausible(OFFSETS_MAX + 1, OFFSETS_MAX) and times.is_plausible(
                OFFSETS_MAX + 1
            ):
                self._offsets, self._times = offsets, times
                return
        log.warning("found implausible indexes stem=%s", self._stem)
        self._rebuild()

    def _read(self, suffix: str, entry_bytes: int) -> bytes | None:
        try:
            data = self._files.read_whole(self._stem.with_suffix(suffix))
        except StorageError as error:
            if not error.is_missing:
                raise
            return None
        return None if len(data) % entry_bytes else data

    def are_sound(self, next_offset: int, log_bytes: int) -> bool:
        """A cheap look at the files: do sizes and last entries fit a log of these bounds?

        Takes the greatest timestamp from there. Recovery rebuilds what is not sound.
        """
        last_offset = self._last_entry(".index", OFFSET_ENTRY_BYTES)
        last_time = self._last_entry(".timeindex", TIME_ENTRY_BYTES)
        if last_offset is None or last_time is None:
            return False
        times = TimeIndex(last_time)
        self.max_timestamp = times.last[0]
        self.max_timestamp_offset = self._base_offset + times.last[1]
        span = next_offset - self._base_offset
        offsets = OffsetIndex(last_offset)
        self.tail_position = offsets.lookup(OFFSETS_MAX)[1]
        return offsets.is_plausible(span, log_bytes) and times.is_plausible(span)

    def _last_entry(self, suffix: str, entry_bytes: int) -> bytes | None:
        path = self._stem.with_suffix(suffix)
        if not self._files.exists(path):
            return None
        file = self._files.open_append(path)
        try:
            if file.size % entry_bytes:
                return None
            return file.read(max(0, file.size - entry_bytes), entry_bytes)
        finally:
            file.close()

    def load_max_timestamp(self) -> None:
        """Take the greatest timestamp from the time index."""
        self.max_timestamp, relative = self.times.last
        self.max_timestamp_offset = self._base_offset + relative

    def notice_time(self, timestamp: int, last_offset: int) -> None:
        """A batch that was indexed before has this timestamp."""
        if timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset

    def resume(self, log_bytes: int, first_timestamp: int) -> None:
        """Go on as if all ``log_bytes`` had been noted; the tail's timestamps were given."""
        self._unindexed = log_bytes - self.last_position
        self.first_timestamp = first_timestamp
        self._notice_full()

    def reset(self) -> None:
        """Forget both indexes and what was derived with them, to note every batch again."""
        self._offsets, self._times = OffsetIndex(), TimeIndex()
        self._generation += 1
        self._is_on_disk = False
        self._unindexed = 0
        self.max_timestamp = self.first_timestamp = -1
        self.max_timestamp_offset = self._base_offset

    def rebuild(self, found: Iterable[BatchHeader]) -> None:
        """Make both indexes from the headers of the log, as far as these can be read."""
        self.reset()
        try:
            for entry in self._in_order(found):
                self.note(entry.position, entry.size, entry.last_offset, entry.max_timestamp)
        except CorruptEntry as corrupt:
            log.error("found a corrupt log stem=%s %s", self._stem, corrupt)
        self.finish()

    def _in_order(self, found: Iterable[BatchHeader]) -> Iterator[BatchHeader]:
        """Headers that were never verified; raises CorruptEntry where offsets make no sense."""
        last_offset = self._base_offset - 1
        for entry in found:
            if not last_offset < entry.last_offset <= self._base_offset + OFFSETS_MAX:
                raise CorruptEntry(entry.position, f"{entry.last_offset} after {last_offset}")
            last_offset = entry.last_offset
            yield entry

    def rebuild_in_slices(
        self, found: Callable[[int, int], Iterable[BatchHeader]], log_bytes: Callable[[], int]
    ) -> Generator[None, None, bool]:
        """As :meth:`rebuild`, pausing now and then; the old ones serve appends until the end.

        ``found`` reads the headers between two positions.
        False when something was dropped meanwhile: then nothing has changed.
        """
        generation, position = self._generation, 0
        fresh = SegmentIndexes(
            self._files, self._stem, self._base_offset, self._rebuild, is_empty=True
        )
        fresh._interval, fresh._entries_max = self._interval, self._entries_max
        try:
            while (end := log_bytes()) > position:
                for count, entry in enumerate(self._in_order(found(position, end))):
                    if count % _ENTRIES_BETWEEN_PAUSES == 0:
                        yield
                        if generation != self._generation:
                            return False
                    fresh.note(entry.position, entry.size, entry.last_offset, entry.max_timestamp)
                    position = entry.position + entry.size
        except CorruptEntry as corrupt:
            log.error("found a corrupt log stem=%s %s", self._stem, corrupt)
        fresh.finish()
        self._adopt(fresh)
        return True

    def _adopt(self, fresh: SegmentIndexes) -> None:
        self.reset()
        self._offsets, self._times, self._unindexed = fresh.offsets, fresh.times, fresh._unindexed
        self.first_timestamp = fresh.first_timestamp
        self.max_timestamp = fresh.max_timestamp
        self.max_timestamp_offset = fresh.max_timestamp_offset
        self._notice_full()

    def truncate(self, offset: int) -> None:
        """Drop what points at ``offset`` or after it."""
        self.offsets.truncate(offset - self._base_offset)
        self.times.truncate(offset - self._base_offset)
        self.transactions.truncate(offset)
        self._generation += 1
        self._is_on_disk = False
        self.load_max_timestamp()

    def prepare_save(self) -> tuple[SavedState, Callable[[], None]]:
        """What a thread must do to make the indexes durable as they are now.

        Afterwards, on the loop, :meth:`mark_saved`.
        """
        works = []
        aborted = self.transactions.unsaved()
        state = SavedState(
            self._generation,
            len(self._offsets or ()),
            len(self._times or ()),
            len(self.transactions) if aborted else -1,
        )
        offsets, times = self._offsets, self._times
        if offsets is not None and times is not None:
            if not self._is_on_disk or len(offsets) > offsets.saved:
                works.append((".index", offsets.saved * 8, offsets.to_bytes(offsets.saved)))
            if not self._is_on_disk or len(times) > times.saved:
                works.append((".timeindex", times.saved * 12, times.to_bytes(times.saved)))

        def save() -> None:
            for suffix, keep_bytes, data in works:
                self._save(self._stem.with_suffix(suffix), keep_bytes, data)
            if aborted:
                self._save_transactions(*aborted)

        return state, save

    def _save(self, path: Path, keep_bytes: int, data: bytes) -> None:
        file = self._files.open_append(path)
        try:
            if file.size < keep_bytes:
                # The log was emptied while this flush was under way, and the file that held so much
                # has another name: an index that begins with zeros is worse than none.
                self._files.unlink(path)
                return
            if file.size != keep_bytes:
                file.truncate(keep_bytes)
            if data:
                file.append(data)
            file.sync_now()
        finally:
            file.close()

    def _save_transactions(self, keep_bytes: int, data: bytes) -> None:
        path = self._stem.with_suffix(TRANSACTION_SUFFIX)
        if keep_bytes or data:
            self._save(path, keep_bytes, data)
        else:
            self._files.unlink(path)
        if not keep_bytes:
            # Unlike the others this file comes long after its segment, or goes before it.
            self._files.sync_directory(path.parent)

    def mark_saved(self, state: SavedState) -> None:
        """The entries of ``state`` are in their files, unless something was dropped since."""
        if state.generation == self._generation and self._offsets is not None:
            self._offsets.saved, self.times.saved = state.offset_entries, state.time_entries
            self._is_on_disk = True
        if state.generation == self._generation and state.aborted >= 0:
            self.transactions.mark_saved(state.aborted)
