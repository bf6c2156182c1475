"""The lease of a node: until when it may answer for what it leads, by its own clock.

In Kafka a coordinator that was deposed and does not know it goes on answering OffsetFetch, with
offsets that its successor has moved on from. With a lease it stops by itself before anybody takes
over: the lease counts from when the node *sent* what extends it, and the controller waits from when
it *received* that, which is later. No clock is compared with another one, only durations are, so
clocks may differ by any offset and drift by less than 10 %.

    node         sends beacon at t ─────────── lease ends: t + T - margin
    controller        receives it at t' ≥ t ──────────────── acts on silence: t' + T

Everything that must not be answered by a node which others have given up asks :meth:`Lease.holds`
at the moment it answers; asked any earlier, a pause of the process could lie in between.

Source: docs/spec/reliability.md §3.1 (a) and (f); docs/beacons.md points 1, 2 and 7.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

from barnabas.broker.runtime.sliding_minimum import SlidingMinimum

LEAST_OVER_S: Final = 60
FIRST_EPOCH: Final = 1
"""Of the first controller of a cluster: it has no predecessor whose leases could last."""


class Lease(Protocol):
    """Whether this node may answer now."""

    def holds(self) -> bool:
        """True when nobody can have been put in this node's place."""

    def is_settled(self, controller_epoch: int) -> bool:
        """Whether what a controller of this epoch let this node lead is surely led by no other.

        A new controller may hand out what its predecessor had just taken from a node that has not
        heard of it; so whoever begins to lead waits until all older leases are over (found by the
        simulation of tests/liveness; docs/beacons.md point 7).
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

    ``clock`` gives seconds and goes on while the machine sleeps (CLOCK_BOOTTIME): by a clock that
    stands still a laptop's lease would hold when it wakes, hours after another node took over.
    """

    __slots__ = (
        "_clock",
        "_end",
        "_least",
        "_losses",
        "_settled_epoch",
        "on_begun",
        "waiting",
        "was_held",
    )

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._end = -math.inf
        self._settled_epoch = FIRST_EPOCH
        self._least = SlidingMinimum(LEAST_OVER_S)
        self._losses = 0
        self.was_held = False
        """It was extended once: not holding now means lost, not never had.

        The two are answered differently (16 and 14): a client looks for another coordinator after
        the one, and comes back after the other."""
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        """What to do once a controller epoch is settled."""
        self.on_begun: list[Callable[[], None]] = []
        """Called when it holds that did not hold before."""

    @property
    def end(self) -> float:
        """When it ends, by ``clock``."""
        return self._end

    @property
    def settled_epoch(self) -> int:
        """The last controller epoch that is settled."""
        return self._settled_epoch

    @property
    def losses(self) -> int:
        """How often it ended, by itself or with the session, since the start."""
        has_ended_by_itself = not self.holds() and self._end > -math.inf
        return self._losses + has_ended_by_itself

    def remaining(self) -> float:
        """Seconds until it ends; 0 when it does not hold."""
        return max(0.0, self._end - self._clock())

    def least_remaining(self) -> float:
        """The least that was left when it was extended, in the last LEAST_OVER_S seconds, or now.

        How near the node came to losing it.
        """
        return min(self._least.least(self._clock()), self.remaining())

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
        # Taken first: what is done here may wait again, or settle.
        waiting, self.waiting = self.waiting, []
        for epoch, act in waiting:
            if epoch <= controller_epoch:
                act()
            else:
                self.waiting.append((epoch, act))

    def unsettle(self) -> None:
        """Forget what settled: another way of judging begins, and with it other older leases.

        Leases that come with the session last much longer than those that come with beacons.
        """
        self._settled_epoch = FIRST_EPOCH

    def extend(self, end: float) -> None:
        """Let it last until ``end`` at least.

        An echo that comes late, or twice, was granted for an earlier beacon: it shortens nothing.
        """
        if end <= self._end:
            return
        did_hold = self.holds()
        if self._end > -math.inf:
            self._losses += not did_hold
            self._least.observe(self._clock(), self.remaining())
        self._end = end
        self.was_held = True
        if not did_hold and self.holds():
            for begun in self.on_begun:
                begun()

    def drop(self) -> None:
        """End it now: the session is lost, or the node stops."""
        self._losses += self._end > -math.inf
        self._end = -math.inf
