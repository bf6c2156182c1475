"""Controller authority: until when a controller is sure of its role, and when it is settled.

Source: docs/spec/reliability.md §3.1 (c), (c') and (d); docs/beacons.md points 10 to 15. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.broker.settings.liveness_settings import DRIFT, BeaconTimes, proof_interval_s

from .lease import FIRST_EPOCH
from .voter_set import NEVER, ZOOKEEPER_ALONE, MajorityTracker, VoterSet


@dataclass(slots=True)
class _InForce:
    voters: VoterSet
    since: float


class ControllerAuthority:
    """One node's authority as controller, term after term; none while it is not controller.

    ``clock`` is the one of the lease.
    """

    def __init__(self, node_id: int, times: BeaconTimes, clock: Callable[[], float]) -> None:
        self.epoch = 0
        """Of this controller, 0 while it is none."""
        self.is_settled = False
        """All that predecessors granted is over; see :meth:`settle`."""
        self._node_id = node_id
        self._times = times
        self._clock = clock
        self._inherited: VoterSet | None = ZOOKEEPER_ALONE
        self._session = 0.0
        self._since = NEVER
        self._checked = NEVER
        self._first_round = math.inf
        self._acknowledged: dict[int, float] = {}
        self._majorities: dict[VoterSet, MajorityTracker] = {}
        self._final: set[int] = set()
        self._in_force: list[_InForce] = []

    def begin(self, epoch: int, inherited: VoterSet | None, session: float) -> None:
        """This node was elected; ``session`` is its own negotiated timeout in seconds.

        ``inherited`` is the set that binds the predecessor, as the election has checked: none is
        known when it could not be read.
        """
        self.end()
        self.epoch = epoch
        self._inherited = inherited
        self._session = session
        self._since = self._clock()
        self._in_force = [_InForce(inherited or ZOOKEEPER_ALONE, NEVER)]
        self.settle()

    def end(self) -> None:
        """This node is controller no longer."""
        self.epoch = 0
        self.is_settled = False
        self._checked = NEVER
        self._first_round = math.inf
        self._acknowledged.clear()
        self._majorities.clear()
        self._final.clear()
        self._in_force = []

    def checked(self, sent: float) -> None:
        """ZooKeeper confirmed the role by a conditional multi that was sent at ``sent``."""
        self._checked = max(self._checked, sent)

    def round_sent(self, sent: float, vote: bool | None) -> None:
        """A round of beacons leaves; ``vote`` is what this node's own voter says to it."""
        self._first_round = min(self._first_round, sent)
        if vote is not None:
            self.acknowledged(self._node_id, sent, is_final=vote)

    def acknowledged(self, node_id: int, sent: float, *, is_final: bool) -> None:
        """A node has acknowledged the round sent at ``sent`` in this epoch."""
        if not self.epoch or not self._first_round <= sent <= self._clock():
            return
        if sent > self._acknowledged.get(node_id, NEVER):
            self._acknowledged[node_id] = sent
            for majority in self._majorities.values():
                majority.acknowledged(node_id)
        if is_final:
            self._final.add(node_id)

    def was_acknowledged_by(self, node_id: int, since: float) -> bool:
        """A round sent at ``since`` or later was acknowledged by this node."""
        return self._acknowledged.get(node_id, NEVER) >= since

    @property
    def end_at(self) -> float:
        """When authority ends, by ``clock``: the earliest of what all sets in force give."""
        if not self.epoch:
            return NEVER
        own = self._checked + self._session * (1 - DRIFT)
        return min(own, *map(self._end_by, self._in_force))

    @property
    def majority_sent(self) -> float:
        """When the newest round was sent that a majority of the voters has acknowledged."""
        return self._majority_sent(self.voters)

    @property
    def is_backed_by_voters(self) -> bool:
        """Voters keep this authority up, and ZooKeeper was asked lately: it need not be, now.

        Lately means within T, or since a voter's last proof of its session, if that is longer: a
        stall of ZooKeeper takes authority away no sooner than the session's bound either way.
        Not while it might be needed at once: where a set falls back to ZooKeeper, while another
        set is about to take its place, when a majority was silent for a quarter of T.
        """
        if not self.is_settled or len(self._in_force) != 1 or self.voters.falls_back:
            return False
        now, timeout = self._clock(), self._times.timeout
        lately = max(timeout, proof_interval_s(min(self._session, self.voters.session)))
        return now - self.majority_sent <= timeout / 4 and now - self._checked < lately

    def settle(self) -> bool:
        """See whether all that predecessors granted is over; it stays so."""
        if self.epoch and not self.is_settled:
            self.is_settled = self._may_settle()
        return self.is_settled

    @property
    def settled_by(self) -> float:
        """When this controller is settled at the latest, whoever is silent."""
        return self._since + self._longest_wait()

    # -- changing the set ---------------------------------------------------------------------

    @property
    def voters(self) -> VoterSet:
        """The set confirmed last."""
        return self._in_force[0].voters if self._in_force else ZOOKEEPER_ALONE

    @property
    def in_force(self) -> tuple[VoterSet, ...]:
        """The set confirmed last, and all that may have taken its place since."""
        return tuple(entry.voters for entry in self._in_force)

    def intend(self, voters: VoterSet) -> None:
        """From now on authority must hold by this set, too: it is to be sent after T."""
        if self.epoch and voters not in self.in_force:
            self._in_force.append(_InForce(voters, self._clock()))

    def may_send(self, voters: VoterSet) -> bool:
        """All that was granted without regard to this set is over, and this one is settled."""
        now = self._clock()
        ages = [now - entry.since for entry in self._in_force if entry.voters == voters]
        return self.settle() and bool(ages) and ages[0] > self._times.timeout

    def confirmed(self, voters: VoterSet) -> None:
        """A write of this set, conditional on version and epoch, was answered: no other can land.

        Neither a lost connection nor a read is such an answer.
        """
        if self.epoch:
            self._in_force = [_InForce(voters, NEVER)]
            self._majorities.clear()

    def forget_unsent(self, sent: Iterable[VoterSet]) -> None:
        """Give up what was intended and never sent; the first set in force stays."""
        kept = [*sent, self.voters]
        self._in_force = [entry for entry in self._in_force if entry.voters in kept]

    def _end_by(self, entry: _InForce) -> float:
        sent = self._majority_sent(entry.voters)
        return entry.voters.end_by(sent, self._checked, self._times)

    def _majority_sent(self, voters: VoterSet) -> float:
        known = self._majorities.get(voters)
        if known is None:  # of one term there are few: each is a change of the voters
            known = self._majorities[voters] = MajorityTracker(voters, self._acknowledged)
        return known.sent

    def _may_settle(self) -> bool:
        if self.epoch == FIRST_EPOCH:
            return True
        waited = self._clock() - self._since
        if waited > self._longest_wait():
            return True
        if self._inherited is None or not self._inherited.is_freed_by(self._final):
            return False
        return waited > self._times.timeout or not self._inherited.falls_back

    def _longest_wait(self) -> float:
        known = self._session if self._inherited is None else self._inherited.session
        return max(self._times.timeout, known)
