"""Who waits for the high watermark of one partition to pass an offset.

Source: docs/spec/cluster.md §3.8. What cannot be committed for long must not pile up here: those
whose own time is over are forgotten when the list has doubled.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Final

from barnabas.protocol.errors import ErrorCode

from .partition_context import OnComplete

FEW: Final = 1000
"""So many are kept without a look at the clock."""

_Wait = tuple[int, int, float, OnComplete]


class CommitWaits:
    """Waits by offset; each is told once: that the offset was passed, or why it will not be."""

    __slots__ = ("_look_at", "_sequence", "_waits")

    def __init__(self) -> None:
        self._waits: list[_Wait] = []
        self._sequence: Iterator[int] = itertools.count()
        self._look_at = FEW

    def __bool__(self) -> bool:
        return bool(self._waits)

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, offset: int, told: OnComplete, until: float, now: float) -> None:
        """Have ``told`` the outcome; after ``until`` whoever waits has decided by itself."""
        heapq.heappush(self._waits, (offset, next(self._sequence), until, told))
        if len(self._waits) >= self._look_at:
            self._waits = [wait for wait in self._waits if wait[2] >= now]
            heapq.heapify(self._waits)
            self._look_at = max(FEW, 2 * len(self._waits))

    def reach(self, mark: int) -> None:
        """Everything below ``mark`` is committed."""
        waits = self._waits
        while waits and waits[0][0] <= mark:
            heapq.heappop(waits)[3](ErrorCode.NONE)
            waits = self._waits

    def fail(self, code: ErrorCode) -> None:
        """Nothing more will be committed here."""
        waits, self._waits = self._waits, []
        for wait in waits:
            wait[3](code)
