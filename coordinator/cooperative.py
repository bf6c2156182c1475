"""Cooperative scheduling of long work: some of it in each turn of the loop.

A group may have 100,000 members that are all answered when its rebalance ends. Done at once that
took the loop seconds, in which no heartbeat was served and no beacon sent. State that must change
together still changes in one turn; responses, sessions and removals follow in further turns. The
first :data:`ITEMS_PER_TURN` are done within the call, so that small groups are served at once.
Requests that name very many groups, members or partitions are served in the same way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

ITEMS_PER_TURN: Final = 250
"""Members dealt with in one turn: some 5 ms, the writing of their answers included."""

Weigh: TypeAlias = Callable[[T], int]
"""How many members' work one item is, at least 1."""


STEPS_PER_TURN: Final = 500
"""Partitions or names looked up in one turn: 1 or 2 ms."""

Steps: TypeAlias = Generator[None, None, T]
"""Long work that gives way after each yield, and has to look anew at what may have changed."""


class Turn:
    """Counts the steps of one request that names very much."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = STEPS_PER_TURN

    def is_over(self, steps: int = 1) -> bool:
        """Count; True when others have to be served first, the next turn being counted then."""
        self._left -= steps
        if self._left > 0:
            return False
        self._left = STEPS_PER_TURN
        return True


class CooperativeScheduler:
    """Runs long work on one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[Callable[[Callable[[], None]], None]] = deque()

    def drive(self, work: Steps[None]) -> None:
        """Begin now, and go on once in each turn of the loop."""
        try:
            next(work)
        except StopIteration:
            return
        self._loop.call_soon(self.drive, work)

    def one_at_a_time(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """Call ``begin`` when all who came before have called what it is given, as it has to.

        For work of many slices that takes memory until it is over.
        """
        self._queue.append(begin)
        if len(self._queue) == 1:
            self._begin_next()

    def _begin_next(self) -> None:
        try:
            self._queue[0](self._end_current)
        except Exception:
            self._end_current()
            raise

    def _end_current(self) -> None:
        self._queue.popleft()
        if self._queue:
            self._loop.call_soon(self._begin_next)

    def run(
        self,
        items: Sequence[T],
        do: Callable[[T], None],
        then: Callable[[], None] | None = None,
        weigh: Weigh[T] | None = None,
    ) -> None:
        """Call ``do`` for each, in order, and then ``then``.

        After the first slice others have had their turn: both have to look again.
        """
        self._run_turn(items, 0, do, then, weigh)

    def _run_turn(
        self,
        items: Sequence[T],
        start: int,
        do: Callable[[T], None],
        then: Callable[[], None] | None,
        weigh: Weigh[T] | None,
    ) -> None:
        stop = start + ITEMS_PER_TURN if weigh is None else _stop(items, start, weigh)
        if stop < len(items):
            self._loop.call_soon(self._run_turn, items, stop, do, then, weigh)
        for item in items[start:stop]:
            do(item)
        if stop >= len(items) and then is not None:
            then()


def _stop(items: Sequence[T], start: int, weigh: Weigh[T]) -> int:
    """Where the slice ends that begins at ``start``: no empty one, and no more than it must be."""
    stop, left = start, ITEMS_PER_TURN
    while stop < len(items) and left > 0:
        left -= weigh(items[stop])
        stop += 1
    return stop
