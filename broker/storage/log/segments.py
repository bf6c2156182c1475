"""The segments of one log, and every change of their list.

    roll       | s0 | s1 | active |   ->  | s0 | s1 | closed | active |
    retention  | s0 | s1 | active |   ->  | s1 | active |
    compaction | s0 | s1 | active |   ->  | n0 | active |                n0 made from s0 and s1
    truncation | s0 | s1 | active |   ->  | s0 | active |                s1 cut at the offset

The list is sorted and replaced whole, never changed: a reader takes it once and keeps it, who
changes it swaps one reference. What leaves the list is renamed to ``.deleted`` at once and unlinked
later, with the producer snapshot that lies beside it; bounds, recovery point and producer state are
for log.py.
Source: docs/spec/log.md §3.5 (steps 3 to 5), §4.2 and §4.3; §9 pitfall P16.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.storage.files import Files
from barnabas.broker.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.broker.storage.producers.producer_state import ProducerStateManager
from barnabas.broker.storage.segment.segment import Segment


class SegmentView(NamedTuple):
    """One state of the list; both tuples are sorted and of one length."""

    bases: tuple[int, ...]
    segments: tuple[Segment, ...]

    def floor(self, offset: int) -> int:
        """Index of the segment whose range holds ``offset``; -1 below the first."""
        return bisect_right(self.bases, offset) - 1

    def upper(self, index: int, end_offset: int) -> int:
        """The offset at which segment ``index`` ends at the latest."""
        return self.bases[index + 1] if index + 1 < len(self.bases) else end_offset


class Segments:
    """At least one segment; the last is active."""

    __slots__ = ("_directory", "_files", "_snapshots", "active", "view")

    def __init__(
        self,
        files: Files,
        directory: Path,
        snapshots: ProducerSnapshots,
        segments: Iterable[Segment],
    ) -> None:
        self._files = files
        self._directory = directory
        self._snapshots = snapshots
        self._publish(segments)

    def _publish(self, segments: Iterable[Segment]) -> None:
        ordered = tuple(segments)
        bases = tuple(segment.base_offset for segment in ordered)
        assert ordered, "a log has an active segment"
        assert all(one < two for one, two in pairwise(bases))
        self.active = ordered[-1]
        self.view = SegmentView(bases, ordered)

    def holds(self, run: Sequence[Segment]) -> bool:
        """Whether ``run`` is a run of neighbours in the list, all of them closed."""
        segments = self.view.segments
        if not run or run[0] not in segments:
            return False
        first = segments.index(run[0])
        return segments[first : first + len(run)] == tuple(run) and run[-1] is not self.active

    def roll(self, base_offset: int, producers: ProducerStateManager, now_ms: int) -> None:
        """Begin a new active segment at ``base_offset``, above all others. Raises StorageError.

        ``producers``, which know the log up to its end, are written down beside it.
        """
        old = self.active
        if old.is_new:
            # A segment's name must never be lost while its successor's is kept. This blocks,
            # but only when no flush has ended since the last roll, which asked for one.
            self._files.sync_directory(self._directory)
            old.is_new = False
        # Before the segment is there: a start that finds it needs no batch below it to know the
        # producers.
        self._snapshots.take(producers, base_offset)
        segment = Segment.create(self._files, self._directory, base_offset, now_ms)
        self._publish((*self.view.segments, segment))

    def remove_oldest(self, count: int) -> tuple[Segment, ...]:
        """Take segments out of the list; :meth:`rename_deleted` is next."""
        assert 0 < count < len(self.view.segments), "the active segment stays"
        gone = self.view.segments[:count]
        self._publish(self.view.segments[count:])
        return gone

    def rename_deleted(self, gone: Sequence[Segment]) -> list[Path]:
        """Rename the files of segments and the snapshots at their starts; the new names."""
        renamed = self._snapshots.rename(segment.base_offset for segment in gone)
        for segment in gone:
            renamed += segment.rename_deleted()
        return renamed

    def replace(
        self,
        new: Sequence[Segment],
        old: Sequence[Segment],
        *,
        end_offset: int,
        recovery_point: int,
        config: LogConfig,
    ) -> list[Path]:
        """Let ``new`` take the place of ``old``, for which :meth:`holds` is true.

        Returns the names that the files of ``old`` have now. Raises StorageError.
        """
        assert new
        assert self.holds(old)
        view = self.view
        first = view.segments.index(old[0])
        after = view.upper(view.segments.index(old[-1]), end_offset)
        assert after <= recovery_point, f"a flush may still write the indexes of {old}"
        assert all(old[0].base_offset <= segment.base_offset < after for segment in new)
        # A snapshot stays with the segment that it is called after: a start removes all others.
        kept = {segment.base_offset for segment in new}
        renamed = self._snapshots.rename(
            segment.base_offset for segment in old if segment.base_offset not in kept
        )
        for segment in old:
            renamed += segment.rename_deleted()
        uppers = [*[segment.base_offset for segment in new[1:]], after]
        for segment, upper in zip(new, uppers, strict=True):
            segment.rename_swapped()
            segment.indexes.configure(config)
            # The worker wrote and fsynced the indexes; this is the look that a start would take.
            if not segment.indexes.are_sound(upper, segment.size):
                segment.rebuild_indexes()
        segments = self.view.segments
        self._publish((*segments[:first], *new, *segments[first + len(old) :]))
        return renamed

    def find_cut(self, offset: int) -> tuple[Segment, int]:
        """The segment that a truncation to ``offset`` cuts, and where the log then ends.

        A batch is never split: the log ends where the one that holds ``offset`` begins.
        """
        view = self.view
        last = view.segments[view.floor(offset)]
        inside = last.gaps.at(offset) or last.find_now(offset)
        return last, min(offset, inside.base_offset) if inside else offset

    def truncate(self, offset: int) -> tuple[Sequence[Segment], list[Path]]:
        """Drop ``offset``, which the first segment's base is not above, and all that follows.

        Returns the segments that are gone and the names that their files have now. The last one
        that stays is active. Raises StorageError.
        """
        view = self.view
        last = view.segments[view.floor(offset)]
        gone = [segment for segment in view.segments if segment.base_offset > offset]
        self._publish(view.segments[: len(view.segments) - len(gone)])
        assert self.active is last
        # From the end, so that whatever a kill leaves of it is a prefix of what was there.
        renamed = [path for segment in reversed(gone) for path in segment.rename_deleted()]
        last.truncate(offset)
        return gone, renamed

    def restart(self, offset: int, now_ms: int) -> tuple[Sequence[Segment], list[Path]]:
        """Drop everything; one empty segment at ``offset`` remains. Returns as :meth:`truncate`."""
        old = self.view.segments
        renamed = self._snapshots.remove_above(-1)
        # Out of the way of the new segment's files, which have the same names; the others follow
        # when the list is whole again.
        for segment in old:
            if segment.base_offset == offset:
                renamed += segment.rename_deleted()
        self._publish((Segment.create(self._files, self._directory, offset, now_ms),))
        for segment in old:
            if segment.base_offset != offset:
                renamed += segment.rename_deleted()
        return old, renamed
