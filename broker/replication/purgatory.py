"""Requests that wait for a high watermark to move: woken by it, bounded by one timer each.

Source: docs/spec/cluster.md §3.8 (acks), docs/spec/log.md §6.3 (min_bytes);
docs/spec/coordinator.md §3.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from barnabas.protocol.errors import ErrorCode

K = TypeVar("K", bound=Hashable)


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
        self._done = _nothing

    def _finish(self) -> None:
        self._done()


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
        """Wait for one append more; the result is to be told its code."""
        self._open.add(key)
        return lambda code: self._decide(key, code)

    def start(self, loop: asyncio.AbstractEventLoop, wait_s: float) -> None:
        """All appends are made: from now on the answer may come, perhaps before this returns."""
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
