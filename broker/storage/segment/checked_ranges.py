"""Which bytes of a segment had the offsets of their batches compared, since a node started.

What a node finds on disk may have been damaged since it was written, and no checksum covers the
offset of a batch: the first reader of each part looks at the headers in it. What was appended since
the start needs no look.
Source: docs/spec/log.md §1.2; docs/log.md, "Damage below the recovery point".
"""

from __future__ import annotations

from typing import Final

RANGES_MAX: Final = 16
"""Of one segment; the oldest is forgotten, and looked at again."""


class CheckedRanges:
    """Disjoint ranges of positions below ``end``, what lies there from an earlier life."""

    __slots__ = ("_ranges", "end")

    def __init__(self, end: int) -> None:
        self.end = end
        self._ranges: list[tuple[int, int]] = []

    def unchecked(self, start: int, end: int) -> tuple[int, int] | None:
        """The part of a range that nobody looked at yet, but for a hole in the middle."""
        end = min(end, self.end)
        for first, behind in self._ranges:
            if first <= start < behind:
                start = behind
            if first < end <= behind:
                end = first
        return (start, end) if start < end else None

    def add(self, start: int, end: int) -> None:
        """All batches that begin in this range were looked at."""
        kept = []
        for first, behind in self._ranges:
            if behind < start or end < first:
                kept.append((first, behind))
            else:
                start, end = min(start, first), max(end, behind)
        self._ranges = [*kept, (start, end)][-RANGES_MAX:]
        if self._ranges == [(0, end)] and end >= self.end:
            self.end = 0

    def cut(self, end: int) -> None:
        """The segment ends at ``end`` now: what comes behind is new."""
        self.end = min(self.end, end)
