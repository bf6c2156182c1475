"""How often nodes say that they live, and how long silence may last.

Source: reliability.md section 3.1; cluster.md section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DRIFT: Final = 0.1
"""Share of a time taken off a lease: clocks may drift against each other by less than this."""


@dataclass(frozen=True, slots=True)
class BeaconTimes:
    """Seconds. ``timeout`` is the T of the argument in docs/beacons.md."""

    interval: float = 0.05
    timeout: float = 0.5

    @property
    def margin(self) -> float:
        """What a node takes off its lease so that it ends before anybody acts on its silence."""
        return self.timeout * DRIFT + self.interval

    @property
    def check_every(self) -> float:
        """How often the controller makes sure of its authority in ZooKeeper."""
        return self.timeout / 4
