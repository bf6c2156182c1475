"""Every kind of fault of docs/spec/reliability.md §4, and which of them follow one another.

The same schedule for the same seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tests.crash import powered_disk

from . import network_namespaces as networks
from .schedule import AIMS, Aim


class FaultKind(Enum):
    """What happens."""

    KILL = "kill -9"
    STOP = "SIGSTOP"
    TERM = "SIGTERM"
    UNPLUGGED = "cut off from all"
    CUT_OFF = "cut off from nodes and ZooKeeper"
    DEAF = "hears neither nodes nor ZooKeeper"
    MUTE = "is not heard by nodes and ZooKeeper"
    WITHOUT_ZOOKEEPER = "cut off from ZooKeeper"
    LOSSY_LINK = "5 % loss"
    SLOW_LINK = "200 ms and 5 % loss"
    EXPIRED = "expired session"
    ZOOKEEPER_STOPPED = "SIGSTOP of ZooKeeper"
    POWER = "power cut"
    DISK_FULL = "disk full"
    DISK_ERROR = "EIO"
    CLOCK = "wall clock ± 1 day"


DISKS: Final = frozenset({FaultKind.POWER, FaultKind.DISK_FULL, FaultKind.DISK_ERROR})
LONG: Final = frozenset({FaultKind.STOP, FaultKind.ZOOKEEPER_STOPPED, FaultKind.UNPLUGGED})
"""What may last for longer than a session."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault. ``seconds``: how long it lasts, or until a node that ended is started again."""

    kind: FaultKind
    aim: Aim
    seconds: float
    luck: float
    """From 0 to 1: which of several nodes it is."""

    def __str__(self) -> str:
        """As a reader of the schedule wants it."""
        return f"{self.kind.value} of {self.aim.value}, {self.seconds:.1f} s"


def plan(
    seed: int, count: int, longest_s: float = 10.0, of: Sequence[FaultKind] = tuple(FaultKind)
) -> list[Planned]:
    """So many faults; each kind comes equally often. Half hit controller and coordinator in one."""
    rng = random.Random(seed)
    found: list[Planned] = []
    while len(found) < count:
        kinds = list(of)
        rng.shuffle(kinds)
        for kind in kinds:
            aim = AIMS[len(found) % len(AIMS)]
            most = longest_s if kind in LONG else longest_s / 2
            found.append(Planned(kind, aim, rng.uniform(1.0, most), rng.random()))
    return found[:count]


def impossible() -> Mapping[FaultKind, str]:
    """Which kinds cannot be had on this machine, and why."""
    without = dict.fromkeys(DISKS, powered_disk.why_not())
    without[FaultKind.SLOW_LINK] = networks.why_no_delay()
    return {kind: why for kind, why in without.items() if why}
