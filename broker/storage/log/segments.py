"""The segments of one log: a sorted list that is replaced whole, never changed.

A reader takes the list once and keeps it; who changes it swaps one reference.
Source: docs/spec/log.md §4.2.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

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

    __slots__ = ("active", "view")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._publish(segments)

    def _publish(self, segments: Iterable[Segment]) -> None:
        ordered = tuple(segments)
        bases = tuple(segment.base_offset for segment in ordered)
        assert all(one < two for one, two in pairwise(bases))
        self.active = ordered[-1]
        self.view = SegmentView(bases, ordered)

    def add(self, segment: Segment) -> None:
        """A new active segment, above all others."""
        self._publish((*self.view.segments, segment))

    def remove(self, gone: Iterable[Segment]) -> None:
        """Take segments out of the list; their files are the caller's from then on."""
        left = set(gone)
        self._publish(segment for segment in self.view.segments if segment not in left)

    def swap(self, new: Sequence[Segment], old: Sequence[Segment]) -> None:
        """Let ``new`` take the place of ``old``, for which :meth:`holds` is true."""
        assert new
        assert self.holds(old)
        segments = self.view.segments
        first = segments.index(old[0])
        self._publish((*segments[:first], *new, *segments[first + len(old) :]))

    def holds(self, run: Sequence[Segment]) -> bool:
        """Whether ``run`` is a run of neighbours in the list, all of them closed."""
        segments = self.view.segments
        if not run or run[0] not in segments:
            return False
        first = segments.index(run[0])
        return segments[first : first + len(run)] == tuple(run) and run[-1] is not self.active

    def replace(self, segment: Segment) -> tuple[Segment, ...]:
        """Only ``segment`` remains; returns those before it."""
        old = self.view.segments
        self._publish((segment,))
        return old
