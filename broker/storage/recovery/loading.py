"""Loading one log from its directory, after a clean stop or a crash.

    | sizes and last index entries compared | every batch verified | bad bytes: cut
    first segment                   recovery point             first that is not whole

Below the recovery point everything was fsynced, so that damage there is no torn tail: it is
quarantined and stays (docs/decisions/0009). Above it a power cut may have left anything, and what
follows the first bad byte was never acknowledged as durable. After a clean stop the recovery point
is the end.

A kill or a power cut in here does no harm. Segments are removed from the log's end, so that what is
left is always a prefix, and the rest of the changes can be found again in the batches. The start
after that is an unclean one, because the marker of the clean stop went before any log was loaded
(test_a_crash_while_loading_leaves_the_next_start_unclean).

Source: docs/spec/log.md §3.3 and §3.4; §9 pitfalls P1, P2, P5, P7, P12 and P14.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.storage.checkpoints import BadCheckpoint
from barnabas.broker.storage.cooperative import in_slices, uninterrupted
from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.leader_epochs import FILE_NAME, LeaderEpochs
from barnabas.broker.storage.producers.producer_replay import replay_producers
from barnabas.broker.storage.producers.producer_snapshots import SUFFIX as SNAPSHOT_SUFFIX
from barnabas.broker.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.broker.storage.segment.batch_headers import CorruptEntry
from barnabas.broker.storage.segment.gaps import Gap, Gaps
from barnabas.broker.storage.segment.segment import SUFFIXES, Segment
from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX

from .crash_leftovers import base_offset_of, clear_leftovers
from .offset_holes import FILE_NAME as HOLES
from .offset_overflow import OffsetOverflow, check_overflow, split_overflow
from .quarantine import QuarantineEntry, report, suspected, write_quarantine
from .segment_recovery import Recovered, Trust, recover_segment, sound_end
from .transaction_index_recovery import TransactionRecovery

log = logging.getLogger(__name__)

_ENTRIES_A_SLICE = 500
"""Headers read between two pauses: other logs, and what the node does meanwhile, get their turn."""


@dataclass(slots=True, kw_only=True)
class LoadedLog:
    """A log as loading found it on disk; whoever gets it owns its segments and their files."""

    segments: Sequence[Segment]
    """Ascending, at least one."""
    start_offset: int
    """The first offset that may be read: at or above the base of the first segment."""
    end_offset: int
    """The offset of the next record: at or above the base of the last segment."""
    recovery_point: int
    """The end: by now all that was kept is fsynced. Raised without that it would call what is only
    in the page cache durable (KAFKA-10101)."""
    epochs: LeaderEpochs
    producers: ProducerStateManager
    """As of ``end_offset``."""
    snapshots: ProducerSnapshots
    has_holes: bool = False
    """Offsets may be missing, and a file says so (offset_holes.py)."""


async def load_log(
    files: Files,
    directory: Path,
    *,
    config: LogConfig,
    is_clean: bool,
    recovery_point: int | None,
    start_offset: int,
    now_ms: int,
    producer_idle_ms: int,
) -> LoadedLog:
    """The log in ``directory``; after an unclean stop its tail is verified and made durable.

    ``recovery_point`` and ``start_offset`` are what the checkpoints say; None and 0 when they say
    nothing. ``now_ms`` is the wall clock; producers that were silent for ``producer_idle_ms`` are
    not taken from a snapshot. Only a disk that refuses ends a start: raises StorageError, never
    for bytes that make no sense (docs/spec/log.md §9 P11).
    """
    # Each round splits one segment, into pieces that fit; their swap is finished by the next.
    while True:
        loading = _Loading(files, directory, config, now_ms, producer_idle_ms, recovery_point)
        loading.open_segments()
        try:
            if is_clean:
                await loading.trust()
            else:
                await loading.recover()
            return await loading.parts(start_offset, is_clean=is_clean)
        except OffsetOverflow as overflow:
            loading.abandon()
            await in_slices(split_overflow(files, directory, overflow.base_offset, config))


def new_log(files: Files, directory: Path, now_ms: int) -> LoadedLog:
    """An empty log in an empty directory. Raises StorageError.

    Nothing of it is durable, not even its name: the first flush fsyncs the directories.
    """
    return LoadedLog(
        segments=[Segment.create(files, directory, 0, now_ms)],
        start_offset=0,
        end_offset=0,
        recovery_point=0,
        epochs=LeaderEpochs(),
        producers=ProducerStateManager(),
        snapshots=ProducerSnapshots(files, directory),
    )


class _Loading:
    """One log while it is being loaded; its steps in order.

    :meth:`open_segments`, then :meth:`trust` or :meth:`recover`, then :meth:`parts`. An object
    serves one round; after OffsetOverflow it is abandoned.
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        config: LogConfig,
        now_ms: int,
        producer_idle_ms: int,
        recovery_point: int | None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._config = config
        self._now_ms = now_ms
        self._silent_since_ms = now_ms - producer_idle_ms
        self._recovery_point = recovery_point or 0
        # Compaction leaves holes in offsets, and followers copy them; else a hole is what a power
        # cut took. A log that no checkpoint lists was set aside, or is another node's: unknown.
        self._is_unlisted = recovery_point is None
        self._is_skipping = config.is_compacted or self._is_unlisted
        self._has_holes = False  # what offset_holes.py notes
        self._suspected: set[int] = set()
        """Base offsets of the segments that the file ``quarantine`` names."""
        self._segments: list[Segment] = []
        self._snapshots = ProducerSnapshots(files, directory)
        self._has_dropped = False
        """Files of segments were removed: their names are to be gone for good before that, too."""
        self._changed: list[Segment] = []
        """Cut, or with other indexes than on the disk: to be fsynced before the log is used."""
        self._transactions = TransactionRecovery()
        self._end_offset = 0
        self._ends: dict[int, int] = {}
        """Where closed segments end that were fsynced, by base offset."""
        self._orphans: set[int] = set()
        """Base offsets of files whose ``.log`` is not there."""
        self._epochs = LeaderEpochs()
        self._are_epochs_lost = False
        """The file is there and makes no sense."""
        self._had_epochs = False
        self._stored_epochs: list[tuple[int, int]] = []
        """What the file said, to write it only when it must say something else."""
        self._is_full = False
        """The disk was full at least once: what should have been written was not."""

    def open_segments(self) -> None:
        """Clear what a crash left, then open every segment without a look inside.

        No descriptor is opened for them: a node has more segments than it may have open files.
        """
        self._suspected = suspected(self._files, self._directory)
        names = clear_leftovers(self._files, self._directory)
        bases = {base_offset_of(name) for name in names if name.endswith(".log")} - {None}
        for name in names:
            base = base_offset_of(name)
            # An index without its log says nothing about any byte; kept, it would be taken for that
            # of a later segment of the same base.
            if name.endswith(SUFFIXES) and base not in bases:
                self._orphans.add(-1 if base is None else base)
                self._files.unlink(self._directory / name)
        snapshots = [base_offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        self._snapshots = ProducerSnapshots(
            self._files, self._directory, [offset for offset in snapshots if offset is not None]
        )
        present = frozenset(names)
        self._has_holes = HOLES in present
        for base in sorted(base for base in bases if base is not None):
            size = self._files.size(self._directory / f"{base:020d}.log")
            segment = Segment(
                self._files, self._directory, base, size=size, created_ms=self._now_ms
            )
            segment.indexes.configure(self._config)
            self._transactions.open(segment, present)
            self._segments.append(segment)
        self._read_epochs()

    def abandon(self) -> None:
        """Let the files go: loading begins anew."""
        for segment in self._segments:
            segment.retire()

    def _read_epochs(self) -> None:
        try:
            text = self._files.read_whole(self._directory / FILE_NAME).decode()
            self._epochs = LeaderEpochs.from_text(text)
        except StorageError as error:
            if not error.is_missing:
                raise
        # A rename that reached the disk before the data left such files (KAFKA-16541).
        except (BadCheckpoint, UnicodeDecodeError) as bad:
            log.warning("rebuilt %s from batches: %s", self._directory / FILE_NAME, bad)
            self._are_epochs_lost = True
        self._stored_epochs = self._epochs.pairs
        self._had_epochs = bool(self._stored_epochs)

    async def trust(self) -> None:
        """After a clean stop: only what looks wrong is verified.

        All was fsynced then, yet the disk may have lost it since: a last segment that is cut short
        is treated as after a crash (test_a_torn_tail_after_a_clean_stop_is_cut_all_the_same).
        """
        await self._check_all(self._segments[:-1])
        # The last segment alone grew since its indexes were compared: its tail is read.
        for last in self._segments[-1:]:
            if await self._looks_sound(last):
                try:
                    self._end_offset = last.load_tail()
                    check_overflow(last, self._end_offset)
                    return
                except CorruptEntry as corrupt:
                    log.error("found a damaged log after a clean stop: %s", corrupt)
            await self._recover([last])

    async def recover(self) -> None:
        """After a crash: verify everything from the recovery point on."""
        bases = [segment.base_offset for segment in self._segments]
        # The segment that holds the point, not the one behind it: its tail is above the point.
        first = max(0, bisect_right(bases, self._recovery_point) - 1)
        await self._check_all(self._segments[:first])
        await self._recover(self._segments[first:])

    async def _check_all(self, segments: list[Segment]) -> None:
        """Look at segments that were fsynced whole; what looks wrong is verified.

        Nothing of them is cut: ``kept`` and ``upper`` are equal, so that damage becomes a gap.
        """
        for segment in segments:
            if await self._looks_sound(segment):
                continue
            upper = self._upper(segment)
            found = await in_slices(recover_segment(segment, Trust(kept=upper, upper=upper)))
            if found.reason:
                self._keep(segment, found, upper)
            self._ends[segment.base_offset] = max(found.next_offset, segment.gaps.end_offset)
            self._changed.append(segment)

    async def _looks_sound(self, segment: Segment) -> bool:
        """Compare sizes and last entries of the indexes with the log; no batch is checksummed.

        Kafka gave these checks up below the recovery point (KAFKA-7283), and an index that came
        back with zeros at its end led to wrong lookups (KAFKA-20979). Raises OffsetOverflow.
        """
        upper = self._upper(segment)
        check_overflow(segment, upper)
        self._transactions.check(segment, upper)
        if segment.base_offset in self._suspected:
            return False
        is_last = segment is self._segments[-1]
        if segment.indexes.are_sound(upper, segment.size):
            end = None if is_last else sound_end(segment)
            if end is not None:
                self._ends[segment.base_offset] = end
            if is_last or end is not None:
                return True
        log.warning("rebuilt indexes path=%s", segment.path(".index"))
        return False

    def _upper(self, segment: Segment) -> int:
        """No offset of a segment reaches so far: the next one's base, or 31 bits above its own."""
        # Looked for by its offset: a log may have ten thousand segments, and all are asked about.
        index = bisect_right(self._segments, segment.base_offset, key=_base_offset)
        if index < len(self._segments):
            return self._segments[index].base_offset
        return segment.base_offset + OFFSETS_MAX + 1

    async def _recover(self, segments: list[Segment]) -> None:
        """Verify segments in order; what lies behind lost or stale data is dropped.

        Of the first one only what lies at the recovery point or above.
        """
        point = self._recovery_point
        expected: int | None = None
        for index, segment in enumerate(segments):
            base = segment.base_offset
            # A segment that does not begin where its predecessor ends was not written behind it:
            # served, its offsets would be there twice, or follow a hole that readers skip.
            if index and (base < self._end_offset or (expected is not None and base != expected)):
                self._drop(segments[index:])
                return
            # A segment with known damage is verified whole: where the damage is must be found
            # again, and in a file that was put back there is none
            # (test_a_restored_file_ends_the_quarantine).
            trusted = 0 if base in self._suspected else point
            trust = Trust(
                below=trusted,
                kept=point,
                upper=self._upper(segment),
                may_skip=self._is_skipping or self._has_holes,
                epochs_grow=not self._is_skipping,
            )
            found = await in_slices(recover_segment(segment, trust, epochs=self._epochs))
            self._end_offset = found.next_offset
            self._transactions.verified(
                segment, trusted, found.next_offset, has_markers=found.has_markers
            )
            if not self._is_empty(segment):
                self._changed.append(segment)
            # What follows the damage was written later, so that none of it was durable either.
            if found.reason and not self._keep_durable(segment, found):
                # Only then the cut: what is behind it must never be found behind a clean end.
                self._drop(segments[index + 1 :])
                segment.cut(found.valid_bytes)
                return
            # Logs roll at their end, and compaction leaves alone what is above the recovery
            # point: a hole between two segments is a tail that a power cut took, at the end of a
            # batch by chance.
            is_unknown = self._is_unlisted and (
                self._config.is_compacted or not found.is_contiguous
            )
            # A successor so far up was rolled, or split off, because offsets did not fit.
            is_unknown = is_unknown or self._upper(segment) - base > OFFSETS_MAX // 2
            expected = None if is_unknown else self._end_offset

    def _is_empty(self, segment: Segment) -> bool:
        """Neither the segment nor an index has a byte: there is nothing to be made durable.

        Most partitions of many clusters are empty, and each took three files' fsyncs of a start
        after a crash: 100,000 of them two minutes. An index that is not there is made.
        """
        if segment.size:
            return False
        paths = {suffix: segment.path(suffix) for suffix in SUFFIXES}
        there = {suffix for suffix, path in paths.items() if self._files.exists(path)}
        is_all_there = there >= {".index", ".timeindex"}
        return is_all_there and not any(self._files.size(paths[suffix]) for suffix in there)

    def _keep_durable(self, segment: Segment, found: Recovered) -> bool:
        """Whether the bad rest of a segment was fsynced: then it is quarantined and stays."""
        path, point = segment.path(".log"), self._recovery_point
        is_last = segment is self._segments[-1]
        # A point that no offset of this segment can reach is damaged itself, and proves nothing.
        is_durable = found.next_offset < point <= segment.base_offset + OFFSETS_MAX
        # Bytes that are missing at the very end are no damage to be kept: there is nothing to keep.
        if not is_durable or (is_last and found.is_missing):
            log.log(
                logging.ERROR if is_durable else logging.WARNING,
                "found a damaged tail path=%s valid_bytes=%d bytes=%d recovery_point=%d reason=%s",
                *(path, found.valid_bytes, segment.size, point, found.reason),
            )
            return False
        upper = point if is_last else self._upper(segment)
        self._keep(segment, found, upper)
        # The damaged segment stays as it is, to be looked at by people; appends go to a new one,
        # at the point: every offset below it was given out, and none may mean two records.
        self._end_offset = upper
        if is_last:
            self._segments.append(Segment.create(self._files, self._directory, upper, self._now_ms))
            self._segments[-1].indexes.configure(self._config)
            self._changed.append(self._segments[-1])
        return True

    def _keep(self, segment: Segment, found: Recovered, upper: int) -> None:
        """Nothing behind ``found`` can be read of a segment that ends below ``upper``.

        A gap has bytes and offsets: without bytes nothing could be kept, without offsets nobody
        refused.
        """
        if found.valid_bytes == segment.size or found.next_offset == upper:
            return
        gap = Gap(found.valid_bytes, segment.size, found.next_offset, upper, found.reason)
        segment.quarantine(Gaps((*segment.gaps, gap)))

    def _tell_of_missing(self) -> None:
        """Tell of offsets between two segments that no third one has any more.

        Readers go on behind them, as in Kafka; without this line nobody would know.
        A log that is not compacted has no such holes. Compaction leaves them: there only an index
        without its log shows that a segment was there, unless a crash left it.
        """
        ends = [(self._ends.get(segment.base_offset), segment) for segment in self._segments]
        for (end, _), (_, following) in pairwise(ends):
            base = following.base_offset
            if end is None or end >= base:
                continue
            is_compacted = self._config.is_compacted
            if not is_compacted or any(end <= orphan < base for orphan in self._orphans):
                log.log(
                    logging.WARNING if is_compacted else logging.ERROR,
                    "found no segment for offsets=%d..%d directory=%s: readers go on behind them. "
                    "To have them again stop the node and put the files back, or, where another "
                    "replica is in sync, remove the directory",
                    *(end, base - 1, self._directory),
                )

    def _note_damage(self) -> None:
        """Tell once what is quarantined, and write it down where it stays.

        When there is none any more, the file that named some goes: the operator reads in it.
        """
        notes = [
            QuarantineEntry(segment.base_offset, gap)
            for segment in self._segments
            for gap in segment.gaps
        ]
        for base, gap in notes:
            report(self._directory / f"{base:020d}.log", gap)
        if notes or self._suspected:
            write_quarantine(self._files, self._directory, notes)

    def _drop(self, segments: list[Segment]) -> None:
        """Remove the last segments, which a crash made unreachable, and their snapshots."""
        # From the end, so that a kill leaves a prefix of the log.
        for segment in reversed(segments):
            log.warning("dropped a segment behind damage path=%s", segment.path(".log"))
            assert self._segments[-1] is segment, "dropped out of order"
            self._segments.pop()
            self._has_dropped = True
            segment.retire()
            for suffix in (*SUFFIXES, SNAPSHOT_SUFFIX):
                self._files.unlink(segment.path(suffix))

    async def parts(self, start_offset: int, *, is_clean: bool) -> LoadedLog:
        """Bounds, epochs and producers, once the segments are in order and safe.

        Producers last: they are read from batches between the bounds, through indexes in order.
        """
        self._changed += await in_slices(
            self._transactions.find(self._segments, self._snapshots, start_offset, self._end_offset)
        )
        await self._sync()
        self._tell_of_missing()
        self._unless_full(self._note_damage)
        # After a crash that is possible, for the end may have been cut; after a clean stop it is
        # not, and to believe it would delete the whole log.
        if is_clean and self._segments and self._end_offset < start_offset:
            log.error(
                "ignored a log start above the end, its checkpoint is damaged directory=%s "
                "log_start=%d end=%d: records that were deleted may be there again",
                *(self._directory, start_offset, self._end_offset),
            )
            start_offset = 0
        if not self._segments or self._end_offset < start_offset:
            self._restart(start_offset)
        # The files may begin above the start that is written down: it is written once a minute,
        # and a deletion by retention before the crash may be younger.
        start_offset = max(start_offset, self._segments[0].base_offset)
        end_offset = max(self._end_offset, self._segments[-1].base_offset)
        assert start_offset <= end_offset, f"{self._directory}: {start_offset}..{end_offset}"
        if self._are_epochs_lost or self._lacks_epochs():
            await in_slices(self._rebuild_epochs())
        _truncate(self._epochs, start_offset, end_offset)
        await self._save_epochs(start_offset, end_offset)
        # A snapshot above the end tells of batches that were cut: the next ones with those offsets
        # would be taken for repeated ones.
        self._snapshots.keep_only((segment.base_offset for segment in self._segments), end_offset)
        producers = await in_slices(
            replay_producers(
                self._segments,
                self._snapshots,
                start_offset,
                end_offset,
                silent_since_ms=self._silent_since_ms,
            )
        )
        # The next start after a crash need not replay what this one did.
        self._unless_full(lambda: self._snapshots.take(producers, end_offset))
        if self._changed or self._has_dropped:
            sync = partial(self._files.sync_directory, self._directory)
            await uninterrupted(self._files.off_loop(sync))
        return LoadedLog(
            segments=self._segments,
            start_offset=start_offset,
            end_offset=end_offset,
            recovery_point=end_offset,
            epochs=self._epochs,
            producers=producers,
            snapshots=self._snapshots,
            has_holes=self._has_holes,
        )

    def _unless_full(self, write: Callable[[], None]) -> None:
        """Do without a file on a full disk: batches are safe, and a start misses what it tells."""
        try:
            write()
        except StorageError as error:
            if not error.is_full:
                raise
            log.warning("did without a file, the disk is full: %s", error)
            self._is_full = True

    async def _save_epochs(self, start_offset: int, end_offset: int) -> None:
        stored = LeaderEpochs(self._stored_epochs)
        _truncate(stored, start_offset, end_offset)
        if stored.pairs == self._epochs.pairs and not self._are_epochs_lost:
            # The next load would cut the file to the same. Every election in an empty log leaves
            # an epoch at its end: 50 offsets partitions took 0.5 s of fsync at each start.
            self._epochs.version = 0
        if self._epochs.version:
            path, data = self._directory / FILE_NAME, self._epochs.to_bytes()
            version, self._epochs.version = self._epochs.version, 0
            save = partial(self._files.write_atomically, path, data)
            await uninterrupted(self._files.off_loop(partial(self._unless_full, save)))
            # Not 0: the first flush then sees that the file is behind, and writes it.
            if self._is_full:
                self._epochs.version = version

    async def _sync(self) -> None:
        """What was verified is fsynced before anybody relies on it (docs/spec/log.md §9 P5).

        Else a record that was only in the page cache could be read now, and be gone after a power
        cut. On a full disk the indexes are left out; a start that misses them makes them again.
        """
        # Dropped ones are closed.
        kept = set(self._segments)
        changed = [segment for segment in self._changed if segment in kept]
        if not changed:
            return
        prepared = [segment.prepare_sync() for segment in changed]

        def sync_all() -> None:
            for sync, save, _ in prepared:
                sync()
                self._unless_full(save)
            self._files.sync_directory(self._directory)

        await uninterrupted(self._files.off_loop(sync_all))
        if not self._is_full:
            for segment, (_, _, state) in zip(changed, prepared, strict=True):
                segment.indexes.mark_saved(state)

    def _restart(self, start_offset: int) -> None:
        """The files end below the log's start, or there are none: begin empty there.

        Epochs and snapshots go too: they would speak of offsets that others get now.
        """
        self._drop(list(self._segments))
        self._snapshots.keep_only((), -1)
        self._epochs.clear()
        self._segments = [Segment.create(self._files, self._directory, start_offset, self._now_ms)]
        self._end_offset = start_offset

    def _lacks_epochs(self) -> bool:
        """Whether the newest batches are of an epoch that the file does not know."""
        # Kafka before 0.11 wrote no such file, and a copy of a directory may lack it. The newest
        # batch that can be read decides.
        known = self._epochs.latest if self._had_epochs else -1
        for segment in reversed(self._segments):
            try:
                for entry in segment.entries():
                    return entry.leader_epoch > known
            except CorruptEntry:
                continue
        return False

    def _rebuild_epochs(self) -> Generator[None, None, None]:
        """Take the epochs from the headers of the whole log, pausing now and then.

        An epoch without a batch is lost with the file, and so is one of which none can be read.
        """
        self._epochs.clear()
        for segment in self._segments:
            try:
                for count, entry in enumerate(segment.entries()):
                    if entry.leader_epoch > self._epochs.latest:
                        self._epochs.assign(entry.leader_epoch, entry.base_offset)
                    if count % _ENTRIES_A_SLICE == 0:
                        yield
            except CorruptEntry as corrupt:
                log.error("could not read epochs path=%s %s", segment.path(".log"), corrupt)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _truncate(epochs: LeaderEpochs, start_offset: int, end_offset: int) -> None:
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
