"""Who waits for bytes of one partition: consumers, consumers of committed records, followers.

Source: docs/spec/log.md §6.1, §6.3 and §7.3.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from .partition_context import FetchWaiter

_ENOUGH: Final = 1 << 62
"""Bytes, more than anybody waits for: how many a transaction held back is not counted."""
_TAIL_MAX: Final = 2048
"""A batch of this size is kept in memory for the followers, one for each partition."""
_APART_MAX: Final = 10_000
"""What cannot be committed for long must not pile up."""


class Readers:
    """Whoever waits is told of each move until it is forgotten."""

    __slots__ = ("_committed", "_consumers", "_followers", "_stable", "tail")

    def __init__(self) -> None:
        self._consumers: dict[FetchWaiter, None] = {}
        self._committed: dict[FetchWaiter, None] = {}
        self._followers: dict[FetchWaiter, None] = {}
        self._stable: int | None = None
        self.tail: tuple[int, bytes] | None = None
        """The last batch that followers were told of, and where it begins: it ends the log.

        None when it is large, or was written in another epoch."""

    def __bool__(self) -> bool:
        return bool(self._consumers or self._committed)

    def wait(self, waiter: FetchWaiter, *, is_committed: bool) -> None:
        """Tell ``waiter`` of moves of the high watermark, or of the last stable offset."""
        (self._committed if is_committed else self._consumers)[waiter] = None

    def wait_for_append(self, waiter: FetchWaiter) -> None:
        """Tell ``waiter`` of every append."""
        self._followers[waiter] = None

    def forget(self, waiter: FetchWaiter) -> None:
        """Tell ``waiter`` no more; harmless when it never waited."""
        for waiting in (self._consumers, self._committed, self._followers):
            waiting.pop(waiter, None)

    def appended(self, base_offset: int, batch: bytearray | memoryview) -> None:
        """The log, which has followers, ends with ``batch`` now."""
        count = len(batch)
        self.tail = (base_offset, bytes(batch)) if count <= _TAIL_MAX else None
        for waiter in tuple(self._followers):
            waiter.grew(count)

    def committed(self, count: int, before: int, mark: int, stable: int) -> None:
        """The high watermark moved ``count`` bytes on, from the offset ``before`` to ``mark``.

        To be told of every move while the last stable offset, now ``stable``, lags behind it.
        """
        for waiter in tuple(self._consumers):
            waiter.grew(count)
        former, self._stable = self._stable, stable if stable < mark else None
        if former is None and stable == mark:
            held = count
        elif stable > (before if former is None else former):
            held = _ENOUGH
        else:
            return
        for waiter in tuple(self._committed):
            waiter.grew(held)

    def end(self, stable: int | None = None) -> None:
        """Whoever waits must ask again; ``stable`` is the last stable offset where it lags."""
        self._stable = stable
        self.tail = None
        for waiter in (*self._consumers, *self._committed, *self._followers):
            waiter.end()


class Unread:
    """How many bytes lie above the high watermark, batch by batch; only the first ones apart."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, end: int, count: int) -> None:
        """A batch of so many bytes was appended and ends before ``end``."""
        if len(self._batches) == _APART_MAX:
            count += self._batches.pop()[1]
        self._batches.append((end, count))

    def up_to(self, mark: int) -> int:
        """Forget the batches below ``mark``; the bytes in them."""
        count = 0
        while self._batches and self._batches[0][0] <= mark:
            count += self._batches.popleft()[1]
        return count

    def clear(self) -> None:
        """Nothing more will be committed here."""
        self._batches.clear()
