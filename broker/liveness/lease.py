"""Until when this node may answer for what it leads, by its own clock.

Source: docs/spec/reliability.md §3.1 (a) and (f). Everything that must not be answered by a node
which others have given up asks :meth:`Lease.holds` at the moment it answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

FIRST_EPOCH: Final = 1
"""Of the first controller of a cluster: it has no predecessor whose leases could last."""


class Lease(Protocol):
    """Whether this node may answer now."""

    def holds(self) -> bool:
        """True when nobody can have been put in this node's place."""

    def is_settled(self, controller_epoch: int) -> bool:
        """Whether what a controller of this epoch let this node lead is surely led by no other.

        A new controller may hand out what its predecessor had just taken from a node that has not
        heard of it; so whoever begins to lead waits until all older leases are over.
        """


class UnlimitedLease:
    """Implements Lease where leases are switched off: as in Kafka, a stale answer is possible."""

    def holds(self) -> bool:
        """Always."""
        return True

    def is_settled(self, controller_epoch: int) -> bool:
        """Always."""
        del controller_epoch
        return True


class TimedLease:
    """Implements Lease; ends by itself unless extended.

    ``clock`` gives seconds and goes on while the machine sleeps (CLOCK_BOOTTIME).
    """

    __slots__ = ("_clock", "_end", "_settled_epoch", "on_begun", "waiting", "was_held")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = -math.inf
        self._settled_epoch = FIRST_EPOCH
        self.was_held = False
        """It was extended once: not holding now means lost, not never had."""
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        """What to do once a controller epoch is settled."""
        self.on_begun: list[Callable[[], None]] = []
        """Called when it holds that did not hold before."""

    @property
    def end(self) -> float:
        """When it ends, by ``clock``."""
        return self._end

    def holds(self) -> bool:
        """The end has not come."""
        return self._clock() < self._end

    def ended_within(self, seconds: float) -> bool:
        """It ended by itself, and not longer ago than that."""
        return self._end <= self._clock() < self._end + seconds

    def is_settled(self, controller_epoch: int) -> bool:
        """A controller of this epoch or a later one has said so."""
        return controller_epoch <= self._settled_epoch

    def settle(self, controller_epoch: int) -> None:
        """A controller is in office for so long that no older lease lasts."""
        if controller_epoch <= self._settled_epoch:
            return
        self._settled_epoch = controller_epoch
        waiting, self.waiting = self.waiting, []
        for epoch, act in waiting:
            if epoch <= controller_epoch:
                act()
            else:
                self.waiting.append((epoch, act))

    def unsettle(self) -> None:
        """Forget what settled: another way of judging begins, and with it other older leases."""
        self._settled_epoch = FIRST_EPOCH

    def extend(self, end: float) -> None:
        """Let it last until ``end`` at least."""
        if end <= self._end:
            return
        did_hold = self.holds()
        self._end = end
        self.was_held = True
        if not did_hold and self.holds():
            for told in self.on_begun:
                told()

    def drop(self) -> None:
        """End it now: the session is lost, or the node stops."""
        self._end = -math.inf
