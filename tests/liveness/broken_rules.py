"""Rules left out one by one: the worlds must show what goes wrong without each, or they are blind.

Only tests have these; points of docs/beacons.md in each docstring.
"""

from __future__ import annotations

import math

from barnabas.broker.liveness.controller_authority import ControllerAuthority
from barnabas.broker.liveness.voter import Voter
from barnabas.broker.liveness.voter_set import VoterSet

from .simulated_nodes import Rules


class NoRelease(ControllerAuthority):
    """Settled at once (15)."""

    def _may_settle(self) -> bool:
        return True


class NoWaitOfTwo(ControllerAuthority):
    """With two voters no T after the takeover (15)."""

    def _may_settle(self) -> bool:
        voters = self._inherited
        return super()._may_settle() or (voters is not None and voters.is_freed_by(self._final))


class NoSessionBound(ControllerAuthority):
    """Authority from votes alone, whatever ZooKeeper says (12)."""

    def checked(self, sent: float) -> None:
        super().checked(max(sent, 1e12))


class NoJointMajority(ControllerAuthority):
    """A change of the set is sent at once, and counts once confirmed (13)."""

    def intend(self, voters: VoterSet) -> None:
        del voters

    def may_send(self, voters: VoterSet) -> bool:
        del voters
        return self.settle()


class UnsettledChanges(ControllerAuthority):
    """A controller changes the set before it is settled (13)."""

    def may_send(self, voters: VoterSet) -> bool:
        was_settled, self.is_settled = self.is_settled, True
        try:
            return super().may_send(voters)
        finally:
            self.is_settled = was_settled


class UnknownOutcomeForgotten(ControllerAuthority):
    """What was sent without an answer counts no longer once something else is wanted (13)."""

    def intend(self, voters: VoterSet) -> None:
        self._in_force = self._in_force[:1]
        super().intend(voters)


class CountsItself(ControllerAuthority):
    """A controller that is not listed counts its own vote for somebody's (12)."""

    def round_sent(self, sent: float, vote: bool | None) -> None:
        super().round_sent(sent, vote)
        others = self.voters.voters - {self._node_id}
        if vote is not None and self._node_id not in self.voters.voters and others:
            self.acknowledged(min(others), sent, is_final=vote)


class OwnSession(ControllerAuthority):
    """Each node computes with its own session timeout instead of the znode's (12, 15)."""

    def begin(self, epoch: int, inherited: VoterSet | None, session: float) -> None:
        if inherited is not None:
            inherited = VoterSet(inherited.voters, session)
        super().begin(epoch, inherited, session)


class NoPromise(Voter):
    """Every acknowledgement is final (11 b)."""

    def acknowledge(self, epoch: int) -> bool | None:
        return None if super().acknowledge(epoch) is None else True


class FollowsAnybody(Voter):
    """Lower epochs are acknowledged, too (11 a)."""

    def acknowledge(self, epoch: int) -> bool | None:
        self._highest = min(self._highest, epoch)
        return super().acknowledge(epoch)


class ForgetsPromises(Voter):
    """A restarted process acknowledges at once, whatever its former life has said (11 b, c)."""

    def registered(self, broker_epoch: int) -> None:
        super().registered(broker_epoch)
        self._lower_at = -math.inf
        self._has_read = True


class VotesWithoutSession(Voter):
    """A process that lost ZooKeeper goes on acknowledging (11 d)."""

    def proved(self, sent: float, session_s: float, broker_epoch: int) -> None:
        super().proved(sent, session_s, broker_epoch)
        self._proved_until = math.inf

    def lost(self) -> None:
        pass


BROKEN_RULES = {
    "no release": Rules(authority=NoRelease),
    "no T with two voters": Rules(authority=NoWaitOfTwo),
    "no session bound": Rules(authority=NoSessionBound),
    "no joint majority": Rules(authority=NoJointMajority),
    "unsettled changes": Rules(authority=UnsettledChanges),
    "unknown outcome forgotten": Rules(authority=UnknownOutcomeForgotten),
    "unlisted controller counts": Rules(authority=CountsItself),
    "own session timeouts": Rules(authority=OwnSession),
    "no promise": Rules(voter=NoPromise),
    "lower epochs": Rules(voter=FollowsAnybody),
    "promises forgotten": Rules(voter=ForgetsPromises),
    "votes without a session": Rules(voter=VotesWithoutSession),
}
