"""Batches that a follower appended and that are not committed yet, as they came.

Source: docs/spec/coordinator.md §3.4.2. Bounded: what does not fit is read from the log when its
time comes.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from barnabas.protocol.records import batch

BYTES_MAX: Final = 1 << 20
"""What one partition keeps at most; normally it is what one round trip brings."""


class UncommittedBatches:
    """The end of one log: every batch from ``start`` to ``end``, both offsets."""

    __slots__ = ("_batches", "_size", "end", "start")

    def __init__(self, end: int) -> None:
        self.start = self.end = end
        self._batches: deque[tuple[int, bytes]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._batches)

    def appended(self, before: int, data: bytes) -> None:
        """``data``, whole batches, was appended to a log that ended at ``before``."""
        if before != self.end:
            self.restart(before)  # something came that nobody told of: it is in the log
        for position, size in batch.iterate(data):
            self.end = batch.next_offset(data, position)
            self._batches.append((self.end, data[position : position + size]))
            self._size += size
        if self._size > BYTES_MAX:
            self.restart(self.end)

    def take(self, position: int) -> bytes | None:
        """The batch that follows ``position``, below which none is asked for again.

        None when it must be read from the log.
        """
        while self._batches and self._batches[0][0] <= position:
            self.start, data = self._batches.popleft()
            self._size -= len(data)
        if position < self.start or not self._batches:
            return None
        return self._batches[0][1]

    def cut(self, offset: int) -> None:
        """Forget batches that end above ``offset``: the log is about to."""
        while self._batches and self._batches[-1][0] > offset:
            self._size -= len(self._batches.pop()[1])
        self.end = min(self.end, self._batches[-1][0] if self._batches else offset)
        self.start = min(self.start, self.end)

    def restart(self, end: int) -> None:
        """Begin anew with a log that ends at ``end``."""
        self._batches.clear()
        self._size = 0
        self.start = self.end = end
