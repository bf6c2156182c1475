"""Handover of the state topics' partitions between living nodes: the old leader is told first.

A coordinator may answer as long as its lease lasts, so the new one hears that it leads only when
the old one has answered that it does not, or its lease is over. Only ``__consumer_offsets`` and
``__transaction_state`` wait for this: what a deposed leader of an ordinary partition acknowledges
is refused by epochs and the ISR.

Source: docs/spec/reliability.md §3.1; docs/spec/transactions.md §10.3; docs/beacons.md point 6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

from barnabas.broker.liveness.failure_detector import FailureDetector
from barnabas.coordinator.ports import STATE_TOPICS

from .context import ControllerContext, Partition

_TIMER_SLACK_S = 0.005


class LeadershipHandovers:
    """Which orders are held back, and until when; ``tell`` sends one that is held no longer."""

    def __init__(
        self,
        context: ControllerContext,
        failure_detector: FailureDetector | None,
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[int, Collection[Partition]], None],
    ) -> None:
        self._context = context
        self._failure_detector = failure_detector
        self._loop = loop
        self._tell = tell
        self._held: dict[Partition, tuple[set[int], int]] = {}
        """By partition: former leaders that may answer still, and the node that waits."""
        self._unaware: dict[int, set[Partition]] = {}
        """By node: what it led and was not heard to know the successor of, lease or no lease."""
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._to_admit: set[int] = set()
        """Nodes shut out for the time of a handover only."""

    def began(self, partition: Partition, old: int | None, new: int) -> None:
        """Another leader was written to ZooKeeper; nobody has been told yet."""
        if partition[0] not in STATE_TOPICS:
            return
        former, _ = self._held.get(partition, (set(), new))
        if old is not None and old != new and old in self._context.nodes:
            former = former | {old}
        former = former - {new}
        self._forget(new, {partition})
        if not former:
            self._held.pop(partition, None)
            return
        self._held[partition] = (former, new)
        for node in former:
            self._unaware.setdefault(node, set()).add(partition)
            self._wait_for(node)

    def is_held(self, node: int, partition: Partition) -> bool:
        """The node is not to hear yet that it leads the partition."""
        held = self._held.get(partition)
        return held is not None and held[1] == node

    def obeyed(self, node: int, partitions: Iterable[Partition]) -> None:
        """A former leader has answered that it knows of its successor, or has no replica now."""
        known_there = set(partitions)
        self._forget(node, known_there)
        self._release(node, known_there)
        if node in self._to_admit and not self.is_awaited(node):
            self._to_admit.discard(node)
            known = self._context.nodes.get(node)
            if known is not None and self._failure_detector is not None:
                self._failure_detector.admit(node, known.epoch)

    def admit_later(self, node: int) -> None:
        """The node may answer again once it has heard of its successors."""
        self._to_admit.add(node)

    def gone(self, node: int) -> None:
        """The node's registration is gone and its lease over, or it is suspected."""
        self._to_admit.discard(node)
        self._unaware.pop(node, None)
        self._release(node, self._held.keys())

    def is_awaited(self, node: int) -> bool:
        """The node has not answered yet that it knows who leads something that it led.

        It must not get a lease until then, also when its last one is over and the successor told.
        """
        leaders = self._context.leaders
        return any(partition in leaders for partition in self._unaware.get(node, ()))

    def recheck(self) -> None:
        """Leases may be over earlier than was thought."""
        for node, timer in list(self._timers.items()):
            timer.cancel()
            self._look_at(node)

    def end(self) -> None:
        """The term is over."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._held.clear()
        self._unaware.clear()

    def _forget(self, node: int, partitions: Collection[Partition]) -> None:
        unaware = self._unaware.get(node)
        if unaware is not None:
            unaware.difference_update(partitions)
            if not unaware:
                del self._unaware[node]

    def _release(self, node: int, partitions: Collection[Partition]) -> None:
        free: dict[int, list[Partition]] = {}
        for partition in list(partitions):
            former, new = self._held.get(partition, (set(), -1))
            if node not in former:
                continue
            former.discard(node)
            if not former:
                del self._held[partition]
                free.setdefault(new, []).append(partition)
        for new, freed in free.items():
            self._tell(new, freed)

    def _wait_for(self, node: int) -> None:
        """No longer than its lease, if it is known to have none but by echoes of ours."""
        if (
            self._failure_detector is None
            or not self._context.nodes[node].registration.sends_beacons
        ):
            return
        if self._failure_detector.is_admitted(node):
            self._to_admit.add(node)
            self._failure_detector.stop_echoing(node)
        if node not in self._timers:
            self._set_timer(node)

    def _set_timer(self, node: int) -> None:
        assert self._failure_detector is not None
        left = max(0.0, self._failure_detector.lease_over_at(node) - self._failure_detector.clock())
        self._timers[node] = self._loop.call_later(left + _TIMER_SLACK_S, self._look_at, node)

    def _look_at(self, node: int) -> None:
        assert self._failure_detector is not None
        del self._timers[node]
        if not any(node in former for former, _ in self._held.values()):
            return
        if self._failure_detector.may_hold_lease(node):
            self._set_timer(node)
        else:
            # It lives and will answer: it is echoed again then, or it would never have a lease.
            self._release(node, self._held.keys())
