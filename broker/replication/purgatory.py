"""The purgatory: everything that waits at a partition, and the requests made of such waits.

    who waits                 for what                               held by
    Produce, acks=-1          the high watermark passes an offset    HighWatermarkWaiters
    Fetch                     more bytes can be read                 FetchWaiters
    DeleteRecords             the low watermark reaches an offset    LowWatermarkWaiters

DelayedProduce and DelayedFetch are requests that wait at several partitions at once: woken by them,
bounded by one timer each. Kafka's DelayedOperationPurgatory looks for completed operations by key
and purges them now and then; here a partition calls whoever waits, so nothing has to be looked for.

Source: docs/spec/cluster.md §3.8 (acks); docs/spec/log.md §4.3 (low watermark), §6.1, §6.3
(min_bytes) and §7.3; docs/spec/coordinator.md §3.2.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

from barnabas.protocol.errors import ErrorCode

from .partition_context import FetchWaiter, OnComplete

K = TypeVar("K", bound=Hashable)

PURGE_MIN: Final = 1000
"""Up to so many waits expired ones are kept: purging takes time, and most waits end soon."""
_ENOUGH: Final = 1 << 62
"""Bytes, more than anybody waits for: how many a transaction held back is not counted."""
_TAIL_MAX: Final = 2048
"""A batch of this size is kept in memory for the followers, one for each partition."""
_BATCHES_MAX: Final = 10_000
"""So many uncommitted batches are counted apart; without a bound they pile up while the ISR is
too small to commit anything."""


# --- requests -------------------------------------------------------------------------------------


class DelayedFetch:
    """A fetch that waits until ``missing`` more bytes can be read, or for ``wait_s``.

    ``done`` is called once, at the end of the turn in which enough came together, so that it
    finds all that the turn brought.
    """

    __slots__ = ("_done", "_is_over", "_loop", "_missing", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        missing: int,
        wait_s: float,
        done: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._missing = missing
        self._done = done
        self._is_over = False
        self._timer = loop.call_later(wait_s, self.end)

    def grew(self, count: int) -> None:
        """A partition that is waited for can be read ``count`` bytes further."""
        self._missing -= count
        if self._missing <= 0:
            self.end()

    def end(self) -> None:
        """Wait no longer: enough came, time is up, or a partition is led elsewhere now."""
        if not self._is_over:
            self._is_over = True
            self._timer.cancel()
            self._loop.call_soon(self._finish)

    def forget(self) -> None:
        """The peer is gone: never call ``done``."""
        self._is_over = True
        self._timer.cancel()
        # _finish may be queued already, and would answer a connection that is closed.
        self._done = _nothing

    def _finish(self) -> None:
        self._done()


def awaited_fetch(
    loop: asyncio.AbstractEventLoop, *, missing: int, wait_s: float
) -> tuple[asyncio.Future[None], DelayedFetch]:
    """A fetch that waits, and what to await of it: an append, a new leader or the clock ends it."""
    came: asyncio.Future[None] = loop.create_future()

    def done() -> None:
        if not came.done():  # the peer may be gone, or the node be stopping
            came.set_result(None)

    return came, DelayedFetch(loop, missing=missing, wait_s=wait_s, done=done)


class DelayedProduce(Generic[K]):
    """Several appends that are answered together, each with its own code.

    ``done`` is called once with the codes: when the last append is decided, or after ``wait_s``
    with REQUEST_TIMED_OUT for those that are not. A decision during :meth:`start` counts.
    """

    __slots__ = ("_codes", "_done", "_open", "_timer")

    def __init__(self, done: Callable[[dict[K, ErrorCode]], None]) -> None:
        self._done: Callable[[dict[K, ErrorCode]], None] | None = done
        self._codes: dict[K, ErrorCode] = {}
        self._open: set[K] = set()
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, key: K) -> Callable[[ErrorCode], None]:
        """Wait for one append more; call the result with its code."""
        self._open.add(key)
        return lambda code: self._decide(key, code)

    def start(self, loop: asyncio.AbstractEventLoop, wait_s: float) -> None:
        """All appends are made: from now on the answer may come, perhaps before this returns."""
        # Not before: the first append may be decided at once, and the answer would lack the others.
        if self._open:
            self._timer = loop.call_later(wait_s, self._expire)
        else:
            self._finish()

    def _decide(self, key: K, code: ErrorCode) -> None:
        if key in self._open:
            self._open.remove(key)
            self._codes[key] = code
            if not self._open and self._timer is not None:
                self._timer.cancel()
                self._finish()

    def _expire(self) -> None:
        self._codes.update(dict.fromkeys(self._open, ErrorCode.REQUEST_TIMED_OUT))
        self._open.clear()
        self._finish()

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(self._codes)


def _nothing() -> None:
    return None


# --- who waits at one partition -------------------------------------------------------------------

_CommitWait = tuple[int, int, float, OnComplete]
"""Offset, sequence number, until when, and whom to call. The sequence number keeps waits for one
offset in order, and callables out of the heap's comparisons."""


class HighWatermarkWaiters:
    """Waits for the high watermark by offset; each is called once, with NONE or with the reason.

    What cannot be committed for long must not pile up here: waits whose own time is over are
    purged when their number has doubled.
    """

    __slots__ = ("_purge_at", "_sequence", "_waits")

    def __init__(self) -> None:
        self._waits: list[_CommitWait] = []
        self._sequence: Iterator[int] = itertools.count()
        self._purge_at = PURGE_MIN

    def __bool__(self) -> bool:
        return bool(self._waits)

    def __len__(self) -> int:
        return len(self._waits)

    def add(self, offset: int, on_committed: OnComplete, until: float, now: float) -> None:
        """Call ``on_committed`` with the outcome; after ``until`` the caller no longer cares."""
        heapq.heappush(self._waits, (offset, next(self._sequence), until, on_committed))
        if len(self._waits) >= self._purge_at:
            self._waits = [wait for wait in self._waits if wait[2] >= now]
            heapq.heapify(self._waits)
            self._purge_at = max(PURGE_MIN, 2 * len(self._waits))

    def complete_up_to(self, high_watermark: int) -> None:
        """Everything below ``high_watermark`` is committed."""
        waits = self._waits
        while waits and waits[0][0] <= high_watermark:
            heapq.heappop(waits)[3](ErrorCode.NONE)
            waits = self._waits  # whoever was called may have appended, or ended the leadership

    def fail(self, code: ErrorCode) -> None:
        """Nothing more will be committed here."""
        waits, self._waits = self._waits, []
        for wait in waits:
            wait[3](code)


class LowWatermarkWaiters:
    """Waits until every live replica has dropped what lies below an offset (DeleteRecords)."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: list[tuple[int, OnComplete]] = []

    @property
    def count(self) -> int:
        """How many wait."""
        return len(self._waits)

    def add(self, offset: int, on_complete: OnComplete) -> None:
        """Call ``on_complete`` with NONE once the low watermark is at ``offset``, or the reason."""
        self._waits.append((offset, on_complete))

    def forget(self, on_complete: OnComplete) -> None:
        """Nobody waits for this any more; harmless when it was called."""
        self._waits = [wait for wait in self._waits if wait[1] is not on_complete]

    def complete_up_to(self, low_watermark: int) -> None:
        """Call those whose offset has been reached."""
        if not self._waits:
            return
        reached = [wait for wait in self._waits if wait[0] <= low_watermark]
        self._waits = [wait for wait in self._waits if wait[0] > low_watermark]
        for _offset, on_complete in reached:
            on_complete(ErrorCode.NONE)

    def fail(self, code: ErrorCode) -> None:
        """Call everybody: the low watermark is not this node's any more."""
        waits, self._waits = self._waits, []
        for _offset, on_complete in waits:
            on_complete(code)


class FetchWaiters:
    """Fetches of consumers, of consumers of committed records, and of followers.

    Each is called at every move until it is forgotten.
    """

    __slots__ = ("_committed", "_consumers", "_followers", "_stable", "tail")

    def __init__(self) -> None:
        self._consumers: dict[FetchWaiter, None] = {}
        self._committed: dict[FetchWaiter, None] = {}
        self._followers: dict[FetchWaiter, None] = {}
        self._stable: int | None = None
        """The last stable offset while it lags behind the high watermark."""
        self.tail: tuple[int, bytes] | None = None
        """The last batch that followers were woken for, and its base offset: it ends the log.

        None when it is large, or was written in another epoch. A follower that lacks only this is
        answered without the file; kept over a change of roles it could be bytes that a truncation
        has taken back."""

    def __bool__(self) -> bool:
        return bool(self._consumers or self._committed)

    def wait(self, waiter: FetchWaiter, *, is_committed: bool) -> None:
        """Call ``waiter`` when the high watermark, or the last stable offset, moves."""
        (self._committed if is_committed else self._consumers)[waiter] = None

    def wait_for_append(self, waiter: FetchWaiter) -> None:
        """Call ``waiter`` at every append."""
        self._followers[waiter] = None

    def forget(self, waiter: FetchWaiter) -> None:
        """Call ``waiter`` no more; harmless when it never waited."""
        for waiting in (self._consumers, self._committed, self._followers):
            waiting.pop(waiter, None)

    def appended(self, base_offset: int, batch: bytearray | memoryview) -> None:
        """The log, which has followers, ends with ``batch`` now."""
        count = len(batch)
        self.tail = (base_offset, bytes(batch)) if count <= _TAIL_MAX else None
        for waiter in tuple(self._followers):
            waiter.grew(count)

    def log_start_moved(self) -> None:
        """The followers are to hear of the new log start at once: somebody waits for theirs."""
        for waiter in tuple(self._followers):
            waiter.grew(_ENOUGH)

    def committed(self, count: int, before: int, mark: int, stable: int) -> None:
        """The high watermark moved ``count`` bytes on, from the offset ``before`` to ``mark``.

        To be called at every move while the last stable offset, now ``stable``, lags behind it.
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


class UncommittedBytes:
    """Bytes above the high watermark, batch by batch: how far a move of it lets fetches read."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, end: int, count: int) -> None:
        """A batch of so many bytes was appended and ends before ``end``."""
        if len(self._batches) == _BATCHES_MAX:
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
