"""Deadlines of many members behind one timer of the loop.

A heartbeat only stores a number: the deadline moves, its place in the heap stays until it comes
up and is then queued again where it belongs. Source: docs/spec/coordinator.md §5.2.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Final

log = logging.getLogger(__name__)

_ROUNDING_S: Final = 0.0005
"""Loops round timers to milliseconds and may wake a moment early."""

TURN_DEADLINES: Final = 250
"""How many are looked at before others have their turn: 100,000 may be due at once."""
TURN_S: Final = 0.005
"""For how long they are acted on: that a member is gone may be 0.3 ms of rebalance and log."""


class Deadline:
    """A moment at which ``expired`` is called unless it is moved or taken back before."""

    __slots__ = ("at", "expired", "queued")

    def __init__(self, expired: Callable[[], None]) -> None:
        self.expired = expired
        self.at = inf
        self.queued = inf

    @property
    def is_running(self) -> bool:
        """Whether it will expire at some time."""
        return self.at != inf


def _tell_nobody() -> None:
    """Of a deadline that was taken back for good."""


class TimerQueue:
    """All deadlines of a coordinator: one heap, one handle of the loop for its first entry."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now = loop.time
        self._heap: list[tuple[float, int, Deadline]] = []
        self._numbers = count()
        self._handle: asyncio.TimerHandle | None = None
        self._wakes_at = inf

    def start(self, deadline: Deadline, after_ms: float) -> None:
        """Let ``deadline`` expire ``after_ms`` from now, whatever was set before."""
        at = deadline.at = self._now() + after_ms / 1000
        if at < deadline.queued:
            self._queue(deadline, at)

    def stop(self, deadline: Deadline) -> None:
        """Take ``deadline`` back; it may be started again."""
        deadline.at = inf

    @staticmethod
    def end(*deadlines: Deadline) -> None:
        """Take ``deadlines`` back for good: they forget whom they would tell.

        Whoever has a deadline is mostly known to it, too. Such a cycle would be freed by the
        collector alone, which looks at old objects seldom (broker/runtime/gc_tuning.py).
        """
        for deadline in deadlines:
            deadline.at = inf
            deadline.expired = _tell_nobody

    def close(self) -> None:
        """Forget everything: nothing expires any more."""
        self._heap.clear()
        self._wakes_at = inf
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _queue(self, deadline: Deadline, at: float) -> None:
        deadline.queued = at
        heapq.heappush(self._heap, (at, next(self._numbers), deadline))
        if at < self._wakes_at:
            self._wake_at(at)

    def _wake_at(self, at: float) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._wakes_at = at
        self._handle = self._loop.call_at(at, self._wake)

    def _wake(self) -> None:
        """Expire what is due and queue again what was moved; a part of it in each turn."""
        self._handle = None
        self._wakes_at = -inf  # nothing queued below arms the timer: it is armed once, at the end
        now = self._now() + _ROUNDING_S
        due = []
        for _ in range(TURN_DEADLINES):
            if not self._heap or self._heap[0][0] > now:
                break
            at, _, deadline = heapq.heappop(self._heap)
            if at != deadline.queued:
                continue  # moved to an earlier place meanwhile
            deadline.queued = inf
            if deadline.at <= now:
                due.append(deadline)
            elif deadline.at != inf:
                self._queue(deadline, deadline.at)
        self._expire(due)
        self._wakes_at = inf
        if self._heap:
            self._wake_at(self._heap[0][0])

    def _expire(self, due: list[Deadline]) -> None:
        due.sort(key=lambda deadline: deadline.at)
        ends = self._now() + TURN_S
        for number, deadline in enumerate(due):
            if deadline.at == inf or deadline.queued != inf:
                continue  # stopped or moved by one before it
            if number and self._now() >= ends:
                self._queue(deadline, deadline.at)  # for the next turn
                continue
            deadline.at = inf
            try:
                deadline.expired()
            except Exception:  # a bug in one must not stop the clock of all (KAFKA-8896)
                log.exception("deadline failed")
