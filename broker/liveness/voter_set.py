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
        return self.end_by(self.majority_sent(acknowledged), checked, times)

    def end_by(self, majority_sent: float, checked: float, times: BeaconTimes) -> float:
        """The same by what :meth:`majority_sent` gives."""
        if not self.voters:
            return checked + times.timeout
        by_votes = majority_sent + times.timeout
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


class MajorityTracker:
    """What :meth:`VoterSet.majority_sent` gives, kept up while acknowledgements come.

    Each of a hundred voters acknowledges each round, and authority is asked for after each: to sort
    all of them every time took half of a controller's time for beacons. The newest round that a
    majority acknowledged changes only when a majority has acknowledged a newer one.
    """

    __slots__ = ("_acknowledged", "_newer", "_voters", "sent")

    def __init__(self, voters: VoterSet, acknowledged: Mapping[int, float]) -> None:
        """``acknowledged`` is looked at again later; no node's time in it ever falls."""
        self._voters = voters
        self._acknowledged = acknowledged
        self.sent = NEVER
        self._newer: set[int] = set()
        self._count()

    def acknowledged(self, node: int) -> None:
        """This node's time has grown."""
        if node in self._voters.voters and self._acknowledged[node] > self.sent:
            self._newer.add(node)
            if len(self._newer) >= self._voters.majority:
                self._count()

    def _count(self) -> None:
        self.sent = self._voters.majority_sent(self._acknowledged)
        self._newer = {
            voter
            for voter in self._voters.voters
            if self._acknowledged.get(voter, NEVER) > self.sent
        }
