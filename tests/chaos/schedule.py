"""Which fault happens to whom, round by round; the same for the same seed.

Source: reliability.md section 3 (fault set F); cluster.md section 3.9.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Fault(Enum):
    """What happens to the victim."""

    KILL = "kill -9"
    STOP = "SIGSTOP"
    TERM = "SIGTERM"


class Aim(Enum):
    """Who is the victim."""

    BOTH = "controller and coordinator"
    COORDINATOR = "coordinator"
    ANY = "any node"


@dataclass(frozen=True, slots=True)
class Round:
    """One fault. ``seconds``: how long it is paused, or left dead before it is started again."""

    fault: Fault
    aim: Aim
    seconds: float
    luck: float
    """From 0 to 1: which of several nodes it is."""

    def __str__(self) -> str:
        """As a reader of the schedule wants it."""
        return f"{self.fault.value} of {self.aim.value}, {self.seconds:.1f} s"


AIMS: Final = (Aim.BOTH, Aim.COORDINATOR, Aim.BOTH, Aim.ANY)
"""In turn: half of all rounds hit whoever is controller and coordinator at once."""


def schedule(seed: int, rounds: int, longest_pause_s: float = 10.0) -> list[Round]:
    """So many rounds; each fault comes equally often, and with every aim."""
    chance = random.Random(seed)
    found: list[Round] = []
    while len(found) < rounds:
        faults = list(Fault)
        chance.shuffle(faults)
        for fault in faults:
            aim = AIMS[len(found) % len(AIMS)]
            most = longest_pause_s if fault is Fault.STOP else 2.0
            least = 1.0 if fault is Fault.STOP else 0.0
            found.append(Round(fault, aim, chance.uniform(least, most), chance.random()))
    return found[:rounds]
