"""What is counted of failovers: nodes and disks that were lost, why, and how long that took.

Phases: *noticed*, from the last sign of life of a node until it is taken for dead; *elected*, from
then until others lead what it led and were told so. How long the coordinators among them take to
load is counted where they load (coordinator/loader.py).
Source: docs/spec/console.md §2.3 (FAILOVERS) and §6.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from barnabas.broker.runtime.latency import Latency

log = logging.getLogger(__name__)


class Cause(StrEnum):
    """How the controller came to know."""

    SILENT = "silent"
    """No beacon came for ``beacon.timeout.ms``: killed, frozen, or cut off."""
    SESSION = "session"
    """Its registration is gone: its session with ZooKeeper ended."""
    RESTARTED = "restarted"
    """It registered anew before anybody saw it go."""
    SHUTDOWN = "shutdown"
    """It said so, and handed over before."""
    TAKEOVER = "takeover"
    """It was gone when this controller began to rule: its predecessor, as a rule."""
    DIRECTORY = "directory"
    """Its disk does not serve these replicas any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """One node that was lost, or some of its disks."""

    node: int
    cause: Cause
    noticed_s: float | None
    """From its last beacon until now; None where it sends none, or that is no matter."""
    elected_s: float
    partitions: int
    """What it led, and others lead now, or nobody."""
    leaderless: int
    """Those that nobody leads."""


class Failovers:
    """Counted over all terms of this node as controller."""

    def __init__(self) -> None:
        self.counts: Counter[Cause] = Counter()
        self.noticed = Latency()
        self.elected = Latency()
        self.on_failover: list[Callable[[Failover], None]] = []
        self.on_rule: list[Callable[[int, Sequence[int]], None]] = []
        """Told the epoch when this node begins to rule, and who is there then."""
        self.on_join: list[Callable[[Sequence[int]], None]] = []
        """Told the nodes that register, or send beacons again, while it rules."""

    def begin(self, epoch: int, nodes: Sequence[int]) -> None:
        """This node rules."""
        for told in self.on_rule:
            told(epoch, nodes)

    def joined(self, nodes: Sequence[int]) -> None:
        """Others came, or came back."""
        for told in self.on_join:
            told(nodes)

    def note(self, failover: Failover) -> None:
        """One is over, as far as the controller is concerned."""
        log.info(
            "failed over node=%d cause=%s partitions=%d leaderless=%d "
            "noticed_ms=%s elected_ms=%.0f",
            failover.node,
            failover.cause,
            failover.partitions,
            failover.leaderless,
            "?" if failover.noticed_s is None else f"{failover.noticed_s * 1000:.0f}",
            failover.elected_s * 1000,
        )
        self.counts[failover.cause] += 1
        self.elected.observe(failover.elected_s)
        if failover.noticed_s is not None:
            self.noticed.observe(failover.noticed_s)
        for told in self.on_failover:
            told(failover)
