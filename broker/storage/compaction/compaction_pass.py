"""One pass of compaction over the closed segments of a log: learn the newest offset of each key,
then copy what is still wanted.

    pass 1  | clean: s0 s1 | dirty: s2 s3 | active |      key -> last offset, of s2 and s3 only
    pass 2  s0 s1 | s2 | s3  ->  one output for each group that fits a segment: n0, n2, n3
            a record stays when the map has no greater offset for its key

The clean head is read again in pass 2: a key that was written anew makes its old value there go. A
map that is full ends pass 1 inside of a segment, and what it does not cover stays as it is.

A generator, so that whoever runs it decides when the next step is taken: a worker process as fast
as its throttle allows, the simulation between other events.
Source: docs/spec/log.md §5.3 to §5.7; §9 pitfalls P8, P19 to P25 and P36.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.storage.files import Files
from barnabas.broker.storage.segment.batch_headers import CorruptEntry, header_at
from barnabas.broker.storage.segment.cleaned_segment import (
    CleanedSegment,
    first_offset,
    remove_cleaned,
)
from barnabas.broker.storage.segment.segment import stem
from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.protocol.records.compaction.cleaned_transactions import CleanedTransactions
from barnabas.protocol.records.compaction.compaction_filter import EntryFilter, live_keys
from barnabas.protocol.records.compaction.offset_map import OffsetMap
from barnabas.protocol.records.walk import Entry as WalkedEntry
from barnabas.protocol.records.walk import Stop, Walk

from .compaction_job import Compacted, CompactionJob, Rewritten, Worked

Steps = Generator[Worked | Rewritten, None, Compacted]

_GROUP_SEGMENTS_MAX: Final = 64
"""So few segments give way at once that renaming their files, on the loop, holds nobody up."""


class Source(NamedTuple):
    """A segment to read."""

    base_offset: int
    size: int
    end: int
    """The base offset of the next one: above every offset here, also where a hole ends it."""


def compact(files: Files, job: CompactionJob) -> Steps:
    """Run one pass; the receiver of a :class:`Rewritten` publishes it before going on.

    Hence there are never ``.cleaned`` files of two runs at a time.
    Raises CorruptEntry and CorruptRecords for a log that cannot be read, and StorageError. The
    files of a run that was not yielded are removed.
    """
    # What a killed worker left. A start takes any `.cleaned` as the sign that the swap of a run was
    # not complete, and removes the `.swap` files at its base and above: their originals may be
    # gone by then.
    remove_cleaned(files, job.directory)
    return (yield from _Pass(files, job).run())


class _Pass:
    def __init__(self, files: Files, job: CompactionJob) -> None:
        self._files = files
        self._job = job
        ends = [*job.bases[1:], job.end]
        self._sources = [Source(*bounds) for bounds in zip(job.bases, job.sizes, ends, strict=True)]
        self._map = OffsetMap(job.map_bytes, job.map_load_factor)
        self._config = LogConfig(
            segment_bytes=job.segment_bytes,
            segment_index_bytes=job.segment_index_bytes,
            index_interval_bytes=job.index_interval_bytes,
        )
        self._read = 0
        """Bytes, the dirty segments twice: once for each pass over them."""
        self._written = 0

    def run(self) -> Steps:
        """Both passes; ends with what is compacted now, at least all that was before."""
        yield from self._learn()
        latest = self._map.latest
        job = self._job
        # Magic 0 and 1 have no delete horizon in a batch. Their tombstones go by the age of their
        # segment, measured from the last clean one; without a clean one all of them stay
        # (docs/spec/log.md §5.5).
        dated = [source for source in self._sources if source.base_offset < job.first_dirty]
        legacy_horizon_ms = -1
        if dated:
            legacy_horizon_ms = self._modified_ms(dated[-1]) - job.delete_retention_ms
        # One filter, and one state of the transactions, for all runs: begun anew for each, it would
        # forget those that are open across two of them (docs/spec/log.md §9 P24).
        kept = EntryFilter(
            self._map,
            CleanedTransactions(job.aborted),
            job.producers,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        # Behind what the map covers nothing is known of any key: those segments are left alone.
        sources = [source for source in self._sources if source.base_offset <= latest]
        for group in self._groups(sources):
            yield from self._copy(group, kept, legacy_horizon_ms)
        return Compacted(latest + 1, self._read, self._written, kept.dropped)

    # Pass 1

    def _learn(self) -> Generator[Worked, None, None]:
        """Fill the map from the dirty segments, as far as it reaches.

        ``latest`` grows by whole batches and never falls below what was clean. It becomes the next
        checkpoint, so that a log with more keys than fit is compacted in several passes.
        """
        dirty = [source for source in self._sources if source.end > self._job.first_dirty]
        # Without those whose marker lies below: it is not read here, so they would never end, and
        # what their producer committed since would count as aborted. A key unknown for that keeps
        # its older records, and shows one of them again when its tombstone goes.
        transactions = CleanedTransactions(
            one for one in self._job.aborted if dirty and one.last_offset >= dirty[0].base_offset
        )
        for source in dirty:
            for entry in self._entries(source):
                keys = live_keys(entry, transactions, self._job.first_dirty)
                # Full: the batch before is the last one covered. Going back to the segment's start
                # instead never ends for a segment that is larger than the map (KAFKA-3587).
                if not self._map.add(keys):
                    return
                if entry.last_offset >= self._job.first_dirty:
                    self._map.latest = entry.last_offset
                yield Worked(len(entry.data))
            # Up to the next segment's base, not the last record: else a hole at the end stays dirty
            # for ever.
            self._map.latest = source.end - 1

    # Pass 2

    def _groups(self, sources: Sequence[Source]) -> Iterator[list[Source]]:
        """Runs of neighbours that fit one segment together."""
        job = self._job
        group: list[Source] = []
        used = (0, 0, 0)
        for source in sources:
            sizes = (
                source.size,
                self._size_of(source, ".index"),
                self._size_of(source, ".timeindex"),
            )
            total = (used[0] + sizes[0], used[1] + sizes[1], used[2] + sizes[2])
            # Group by what the output might need at most; compaction only drops records, but
            # another compression may make a batch larger: `_put` splits then (docs/spec/log.md §9
            # P20).
            if group and (
                total[0] > job.segment_bytes
                or max(total[1:]) > job.segment_index_bytes
                # Index entries have 31 bits above the base (KAFKA-6264). By the last offset that
                # is possible, not the last one there: test_segments_far_apart_are_not_joined.
                or (source.size and source.end - 1 - group[0].base_offset > OFFSETS_MAX)
                or len(group) >= _GROUP_SEGMENTS_MAX
            ):
                yield group
                group, total = [], sizes
            group.append(source)
            used = total
        if group:
            yield group

    def _copy(
        self, group: list[Source], kept: EntryFilter, legacy_horizon_ms: int
    ) -> Generator[Worked | Rewritten, None, None]:
        """Write what is wanted of a run of segments, and say so when it is durable.

        There is an output even when nothing is wanted: a run is replaced, never just removed.
        """
        outputs = [self._output(group[0].base_offset)]
        # The age of the newest source. With the time of the copy, retention would keep records
        # without a timestamp as if they had come today (docs/spec/log.md §3.5).
        modified_ms = self._modified_ms(group[-1])
        try:
            for source in group:
                kept.keeps_legacy_tombstones = self._modified_ms(source) > legacy_horizon_ms
                for entry in self._entries(source):
                    data, aborted = kept.judge(entry)
                    written = len(data) if data is not None else 0
                    if data is not None:
                        self._put(outputs, data)
                        if aborted is not None:
                            outputs[-1].note_aborted(aborted)
                    self._written += written
                    yield Worked(len(entry.data) + written)
            outputs[-1].finish()
            for output in outputs:
                output.date(modified_ms)
            # Durable before anybody hears of it: the swap renames these files over the only copy.
            self._files.sync_directory(self._job.directory)
        # Also GeneratorExit: the receiver may end the pass at any step, by closing this generator.
        except BaseException:
            for output in outputs:
                output.close()
            remove_cleaned(self._files, self._job.directory)
            raise
        # Outside of the `try`: from here on the files are the receiver's, who renames them.
        yield Rewritten(
            [source.base_offset for source in group],
            [(output.base_offset, output.size) for output in outputs],
        )

    def _put(self, outputs: list[CleanedSegment], data: bytes | bytearray) -> None:
        """Append to the last output, or to one more where that has no room.

        Takes the batch as it was judged. To judge it a second time would count its transaction
        twice (docs/spec/log.md §9 P20).
        """
        entry = header_at(data)
        if not outputs[-1].takes(len(data), entry.last_offset):
            outputs[-1].finish()
            outputs.append(self._output(first_offset(data)))
        outputs[-1].append(data, entry)

    def _output(self, base_offset: int) -> CleanedSegment:
        job = self._job
        return CleanedSegment(
            self._files, job.directory, base_offset, self._config, job.buffer_bytes
        )

    # Files

    def _entries(self, source: Source) -> Iterator[WalkedEntry]:
        """Every entry of a segment, verified; raises CorruptEntry where one is not.

        Rewritten without a look, a damaged batch would get a checksum that is right.
        The segment must be there: opened with O_CREAT, a deleted one would come back empty.
        """
        file = self._files.open_existing(self._path(source, ".log"))
        try:
            walk = Walk(file.read, end=source.size, base_offset=source.base_offset)
            for entry in walk:
                self._read += len(entry.data)
                yield entry
            if walk.stop is not Stop.END:
                raise CorruptEntry(walk.valid_bytes, f"{file.path}: {walk.reason}")
        finally:
            file.close()

    def _path(self, source: Source, suffix: str) -> Path:
        return self._job.directory / (stem(source.base_offset) + suffix)

    def _size_of(self, source: Source, suffix: str) -> int:
        """In bytes; 0 when there is no such file, which can be made again from the batches."""
        path = self._path(source, suffix)
        return self._files.size(path) if self._files.exists(path) else 0

    def _modified_ms(self, source: Source) -> int:
        return self._files.modified_ms(self._path(source, ".log"))
