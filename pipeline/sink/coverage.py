"""Which offsets of a partition are in a file: as runs, so that gaps can be told.

Gaps are legal: compaction, aborted transactions, markers, and rows that somebody filtered out.
Source: docs/spec/pipeline.md §2 (gaps are recorded, not refused).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

RUNS_MAX: Final = 1_000
"""Gaps behind so many are not told apart: a compacted topic may have one behind every record."""

Run = tuple[int, int]
"""First offset, and the one after the last."""


@dataclass
class Coverage:
    """The offsets of one partition, in whatever order they came."""

    rows: int = 0
    runs: list[Run] = field(default_factory=list)

    def add(self, offsets: Sequence[int]) -> None:
        """Take the offsets of some rows, at least one."""
        self.rows += len(offsets)
        if offsets[-1] - offsets[0] + 1 == len(offsets) and _rises(offsets):
            self._join(offsets[0], offsets[-1] + 1)
            return
        for offset in sorted(offsets):
            self._join(offset, offset + 1)

    @property
    def first(self) -> int:
        """The lowest offset."""
        return min(run[0] for run in self.runs)

    @property
    def end(self) -> int:
        """One more than the highest offset."""
        return max(run[1] for run in self.runs)

    def _join(self, first: int, end: int) -> None:
        if self.runs and (self.runs[-1][1] == first or len(self.runs) >= RUNS_MAX):
            self.runs[-1] = (min(self.runs[-1][0], first), max(self.runs[-1][1], end))
        else:
            self.runs.append((first, end))


def merged(parts: Iterable[Sequence[Run]]) -> list[Run]:
    """The runs of several files as one, in order; what is there twice counts once."""
    found: list[Run] = []
    for first, end in sorted((run[0], run[1]) for runs in parts for run in runs):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((first, end))
    return found


def described(rows: int, runs: Sequence[Run]) -> dict[str, Any]:
    """What a manifest says of a partition: its range, its rows, and the gaps in it."""
    gaps = [[before[1], after[0]] for before, after in pairwise(runs)]
    return {
        "first": runs[0][0],
        "end": runs[-1][1],
        "rows": rows,
        "missing": runs[-1][1] - runs[0][0] - rows,
        "gaps": gaps[:RUNS_MAX],
    }


def _rises(offsets: Sequence[int]) -> bool:
    """Whether so many offsets in so small a range follow each other one by one."""
    return offsets == list(range(offsets[0], offsets[0] + len(offsets)))
