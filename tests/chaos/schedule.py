"""Which fault happens to whom, round by round; the same for the same seed.

Source: docs/spec/reliability.md §3 (fault set F); docs/spec/cluster.md §3.9.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Fault(Enum):
    """What happens to the victim: a node, or ZooKeeper."""

    KILL = "kill -9"
    STOP = "SIGSTOP"
    TERM = "SIGTERM"
    STALL = "SIGSTOP of ZooKeeper"
    RESTART = "restart of ZooKeeper"
    SERVER = "kill -9 of a ZooKeeper server"


NODE_FAULTS: Final = (Fault.KILL, Fault.STOP, Fault.TERM)
ZOOKEEPER_FAULTS: Final = (Fault.STALL, Fault.RESTART, Fault.SERVER)
PAUSES: Final = (Fault.STOP, Fault.STALL)


class Aim(Enum):
    """Who is the victim."""

    BOTH = "controller and coordinator"
    COORDINATOR = "coordinator"
    ANY = "any node"
    ENSEMBLE = "the ensemble"


@dataclass(frozen=True, slots=True)
class Round:
    """One fault. ``seconds``: how long it is paused, or left dead before it is started again.

    Each server of ZooKeeper that is restarted is left dead for so long.
    """

    fault: Fault
    aim: Aim
    seconds: float
    luck: float
    """From 0 to 1: which of several nodes or servers it is."""

    def __str__(self) -> str:
        """As a reader of the schedule wants it."""
        return f"{self.fault.value} of {self.aim.value}, {self.seconds:.1f} s"


AIMS: Final = (Aim.BOTH, Aim.COORDINATOR, Aim.BOTH, Aim.ANY)
"""In turn: half of all rounds hit whoever is controller and coordinator at once."""


def schedule(
    seed: int,
    rounds: int,
    longest_pause_s: float = 10.0,
    faults: Sequence[Fault] = NODE_FAULTS,
) -> list[Round]:
    """So many rounds; each fault comes equally often, those of nodes with every aim."""
    rng = random.Random(seed)
    found: list[Round] = []
    aims = itertools.cycle(AIMS)
    while len(found) < rounds:
        shuffled = list(faults)
        rng.shuffle(shuffled)
        for fault in shuffled:
            aim = Aim.ENSEMBLE if fault in ZOOKEEPER_FAULTS else next(aims)
            most = longest_pause_s if fault in PAUSES else 2.0
            least = 1.0 if fault is Fault.STOP else 0.0
            found.append(Round(fault, aim, rng.uniform(least, most), rng.random()))
    return found[:rounds]
