"""Recovery of one segment: keep what is whole, say where the rest begins, make the indexes anew.

    whole | whole | torn                 the file ends inside a batch: a crash cut a write short
    whole | whole | 00 00 00 ...         the size grew before the data came: zeros, or an old block
    whole | whole | older batch          an old block of this very file: only its offsets tell
    whole | flipped bit | whole          below the recovery point: a gap, and the rest is served

Whatever cannot be parsed is damage at that place, never a failure of the start; only what the disk
itself refuses is (docs/spec/log.md §9 P11).

Source: docs/spec/log.md §3.4; §9 pitfalls P10 to P12.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.broker.storage.leader_epochs import LeaderEpochs
from barnabas.broker.storage.segment.batch_headers import CorruptEntry
from barnabas.broker.storage.segment.gaps import Gap, Gaps
from barnabas.broker.storage.segment.segment import IndexLost, Segment
from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.protocol.records.batch import is_control
from barnabas.protocol.records.header import INT64_MAX
from barnabas.protocol.records.walk import Entry, Stop, Walk

from .misplaced_batches import MISPLACED, misplaced_before
from .offset_overflow import OffsetOverflow
from .quarantine import next_entry

log = logging.getLogger(__name__)

_SLICE_BYTES = 1 << 20
"""Of batches that are verified between two pauses."""


class Recovered(NamedTuple):
    """What a recovery found. Nothing was cut by it: the caller knows what was durable."""

    next_offset: int
    """After the last good batch; the segment's base when there is none."""
    valid_bytes: int
    """Where the last good batch ends; what comes after is no good."""
    reason: str
    """Why it is not; empty when there is nothing after it."""
    is_missing: bool
    """The file ends inside an entry: bytes are not there, rather than wrong, and there is nothing
    that could be kept."""
    is_contiguous: bool
    """No offset is missing in what was verified."""
    has_markers: bool
    """A control batch is in what was verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """What is known of a segment before it is verified.

        | trusted        | verified, damage is a gap | verified, the log ends at damage |
        base           below                       kept                            upper

    The default knows nothing: all is verified, and the log ends at the first damage.
    """

    below: int = 0
    """What lies below this offset was fsynced with its indexes and is left alone."""
    kept: int = 0
    """What lies below this offset was fsynced: damage there is no torn tail."""
    upper: int = INT64_MAX
    """Every offset is below."""
    may_skip: bool = True
    """Offsets may be missing from ``kept`` on, as compaction leaves them."""
    epochs_grow: bool = False
    """From ``kept`` on a leader epoch that falls is damage."""


_NOTHING = Trust()


def recover_segment(
    segment: Segment, trust: Trust = _NOTHING, *, epochs: LeaderEpochs | None = None
) -> Generator[None, None, Recovered]:
    """Verify every batch of a segment and rebuild its indexes, pausing now and then.

    Nothing is cut. New leader epochs are noted in ``epochs``. Raises StorageError, and
    OffsetOverflow for a segment whose offsets do not fit, which must be split and not cut.
    """
    return (yield from _Recovery(segment, trust, epochs).run())


def trust_below(segment: Segment, offset: int) -> tuple[int, int] | None:
    """Keep the indexes of what was flushed, below ``offset``; the rest is to be noted again.

    A segment of a gigabyte is then verified from its last flush on, not from its start. Returns
    where the rest begins, as (position, last offset before it). None when the files do not bear it
    out, because no batch ends just below ``offset`` for instance: then nothing is trusted
    (test_a_recovery_point_that_the_files_do_not_bear_out_trusts_nothing).
    """
    indexes, last_offset = segment.indexes, segment.base_offset - 1
    # A wide bound: entries above the offset are no fault, and are dropped in a moment.
    if offset <= segment.base_offset or not indexes.are_sound(offset + OFFSETS_MAX, segment.size):
        return None
    try:
        indexes.truncate(offset)
        for entry in segment.entries(indexes.last_position):
            if not last_offset < entry.last_offset < offset:
                return None
            last_offset = entry.last_offset
            indexes.notice_time(entry.max_timestamp, last_offset)
            if last_offset + 1 == offset:
                end = entry.position + entry.size
                indexes.resume(end, segment.first_timestamp())
                return end, last_offset
    except (CorruptEntry, IndexLost):
        pass  # the reason is found again, and told, by who verifies everything
    return None


def sound_end(segment: Segment) -> int | None:
    """Where a closed segment ends, if its time index ends with the greatest time, as when closed.

    Looks at the batches after the last indexed one; None also when these cannot be read. Retention
    and ListOffsets go by that last entry. A roll adds it in memory; a crash before the next flush
    leaves an earlier one, by which the segment might be deleted before its time.
    """
    newest, next_offset = -1, segment.base_offset
    try:
        for entry in segment.entries(segment.indexes.tail_position):
            newest, next_offset = max(newest, entry.max_timestamp), entry.last_offset + 1
    except CorruptEntry:
        return None
    if newest > segment.indexes.max_timestamp:
        return None
    return max(next_offset, segment.gaps.end_offset)


class _Recovery:
    def __init__(self, segment: Segment, trust: Trust, epochs: LeaderEpochs | None) -> None:
        self._segment = segment
        self._trust = trust
        self._epochs = epochs
        self._size = segment.size
        self._misplaced: set[int] = set()
        """Positions of batches that only those behind them show to be wrong."""
        self._start_at_zero()

    def _start_at_zero(self) -> None:
        self._position = 0
        self._next_offset = self._begins = self._segment.base_offset
        self._last: Entry | None = None
        """The last good batch, which should begin at ``_begins`` or behind."""
        self._epoch = -1
        """The greatest leader epoch among the verified batches: epochs never fall in a log."""
        self._is_contiguous = True
        self._has_markers = False
        self._gaps: list[Gap] = []

    def run(self) -> Generator[None, None, Recovered]:
        """Verify; once more from the start for each batch that those behind it prove wrong."""
        segment = self._segment
        segment.forget_hints()
        begin = trust_below(segment, self._trust.below)
        if begin is None:
            segment.indexes.reset()
            segment.quarantine(Gaps())
        else:
            self._position, self._next_offset = begin[0], begin[1] + 1
        while (outcome := (yield from self._pass())) is None:
            segment.indexes.reset()
            segment.quarantine(Gaps())
            self._start_at_zero()
        stop, reason = outcome
        # A good batch that an old cleaner put too far up (KAFKA-6264): to cut there would lose it.
        if stop is Stop.OVERFLOW:
            raise OffsetOverflow(segment.path(".log"), segment.base_offset)
        # As a roll and a close do: the next start compares this entry with the batches.
        segment.indexes.finish()
        if self._gaps:
            segment.quarantine(Gaps((*segment.gaps, *self._gaps)))
        return Recovered(
            self._next_offset,
            self._position,
            reason,
            stop is Stop.PARTIAL,
            self._is_contiguous,
            self._has_markers,
        )

    def _pass(self) -> Generator[None, None, tuple[Stop | None, str] | None]:
        """All of it once; None when a batch that was noted turned out to be wrong."""
        while True:
            stop, reason = yield from self._verify()
            if reason and self._is_last_misplaced():
                return None
            # Above what was fsynced nothing is looked for behind damage: a good batch there would
            # leave a hole in the log, and nobody was promised it.
            if not reason or self._next_offset >= self._trust.kept:
                return stop, reason
            found = yield from self._resume(reason)
            if not found:
                return stop, reason

    def _is_last_misplaced(self) -> bool:
        """Whether the last batch is wrong, rather than what follows it; then that is noted.

        Below ``kept`` it becomes a gap. Above, where only a log that may skip offsets has such a
        batch, the log ends before it: kept, its records were served with wrong offsets.
        """
        last, trust = self._last, self._trust
        if last is None or last.position in self._misplaced:
            return False
        right = misplaced_before(
            self._segment.read,
            self._position,
            self._size,
            last=last,
            next_offset=self._begins,
            upper=trust.upper,
        )
        if right is not None:
            self._misplaced.add(last.position)
        return right is not None

    def _verify(self) -> Generator[None, None, tuple[Stop | None, str]]:
        """Go on to the end or to damage; says why it stopped."""
        walk = Walk(
            self._segment.read,
            end=self._size,
            start=self._position,
            base_offset=self._segment.base_offset,
            previous_offset=self._next_offset - 1,
        )
        since_pause = 0
        for entry in walk:
            if problem := self._problem(entry):
                return Stop.CORRUPT, problem
            self._note(entry)
            since_pause += len(entry.data)
            if since_pause >= _SLICE_BYTES:
                since_pause = 0
                yield
        return walk.stop, walk.reason if self._position < self._size else ""

    def _problem(self, entry: Entry) -> str:
        """Damage that only others show, or an old block that the disk had for another file."""
        is_kept = self._next_offset < self._trust.kept
        if entry.position in self._misplaced or (
            is_kept and entry.last_offset >= self._trust.upper
        ):
            return MISPLACED
        # A block that the file system had left from before passes its checksum: that its offsets
        # follow, and its epoch does not fall, is the only proof of its place (KAFKA-3047).
        if entry.base_offset < self._trust.kept:
            return ""
        is_behind_hole = entry.magic == 2 and entry.base_offset > self._next_offset
        if is_behind_hole and not self._trust.may_skip:
            return f"offset {entry.base_offset} instead of {self._next_offset}"
        if self._trust.epochs_grow and 0 <= entry.leader_epoch < self._epoch:
            return f"leader epoch {entry.leader_epoch} after {self._epoch}"
        return ""

    def _note(self, entry: Entry) -> None:
        """Take a good batch over, into the indexes as an append would."""
        count = len(entry.data)
        self._segment.indexes.note(entry.position, count, entry.last_offset, entry.max_timestamp)
        if self._epochs is not None and entry.leader_epoch > self._epochs.latest:
            self._epochs.assign(entry.leader_epoch, entry.base_offset)
        self._has_markers = self._has_markers or is_control(entry.data)
        self._epoch = max(self._epoch, entry.leader_epoch)
        self._position = entry.position + count
        self._last, self._begins = entry, self._next_offset
        self._is_contiguous = self._is_contiguous and entry.base_offset == self._next_offset
        self._next_offset = entry.last_offset + 1

    def _resume(self, reason: str) -> Generator[None, None, bool]:
        """Look for good batches behind damage; False when there are none.

        What is between becomes a gap, and the batch found has no predecessor to be judged by.
        """
        found = yield from next_entry(
            self._segment.read,
            self._position,
            self._size,
            base_offset=self._segment.base_offset,
            next_offset=self._next_offset,
            upper=self._trust.upper,
        )
        if found is None:
            return False
        self._gaps.append(
            Gap(self._position, found.position, self._next_offset, found.base_offset, reason)
        )
        self._position, self._next_offset = found.position, found.base_offset
        self._last = None
        return True
