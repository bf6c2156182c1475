"""The set of voters: what acknowledgements and checks give a controller.

Source: docs/spec/reliability.md §3.1 (c') and (d); docs/beacons.md points 10, 12 and 15. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from barnabas.broker.settings.liveness_settings import DRIFT, BeaconTimes

NEVER: Final = -math.inf


@dataclass(frozen=True, slots=True)
class VoterSet:
    """What ``/barnabas/voters`` holds; an empty set is the first form, ZooKeeper alone."""

    voters: frozenset[int] = frozenset()
    session: float = 0.0
    """Z in seconds: how long authority may outlast the last confirmed check of the role."""

    @property
    def majority(self) -> int:
        """So many voters decide."""
        return len(self.voters) // 2 + 1

    @property
    def falls_back(self) -> bool:
        """Authority may come from ZooKeeper alone: one dead voter of two must not cost more."""
        return len(self.voters) in {0, 2}

    def authority_end(
        self, acknowledged: Mapping[int, float], checked: float, times: BeaconTimes
    ) -> float:
        """When authority ends.

        ``acknowledged`` is when the newest round was sent that a node has acknowledged,
        ``checked`` when the last check was sent that ZooKeeper has confirmed; all by the
        controller's clock.
        """
        if not self.voters:
            return checked + times.timeout
        by_votes = self.majority_sent(acknowledged) + times.timeout
        end = min(by_votes, checked + self.session * (1 - DRIFT))
        return max(end, checked + times.timeout) if self.falls_back else end

    def is_freed_by(self, finally_acknowledged: Collection[int]) -> bool:
        """The voters that still might follow a predecessor are no majority."""
        rest = self.voters.difference(finally_acknowledged)
        return len(rest) < self.majority  # nobody is, of none

    def majority_sent(self, acknowledged: Mapping[int, float]) -> float:
        """When the newest round was sent that a majority has acknowledged; never for no voters."""
        if not self.voters:
            return NEVER
        sent = sorted((acknowledged.get(voter, NEVER) for voter in self.voters), reverse=True)
        return sent[self.majority - 1]


ZOOKEEPER_ALONE: Final = VoterSet()
