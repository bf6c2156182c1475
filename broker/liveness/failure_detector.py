"""The failure detector: whom a controller echoes, and whose silence it may act on.

Two promises that depend on each other. An echo lets a node answer for a while, so it is given only
to nodes that are up to date; silence lets the controller put another in a node's place, so it acts
on it only when every lease that this node may hold is over. Both need *authority*: a controller
that cannot be sure of its role (controller_authority.py) echoes nobody and suspects nobody.

A wrong suspicion costs an election and never an offset: safety is in the leases and epochs, and
the time-out T decides only how fast a dead node is replaced.

Source: docs/spec/reliability.md §3.1 (b) to (e); docs/beacons.md has the argument. Pure: beacons,
times and the outcome of checks come in, echoes go out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.beacon import TAKES_BUNDLES, Acknowledgement, Beacon, Echo

from .beacon_sender import MICROSECONDS, AuthorityClaim, stride
from .controller_authority import ControllerAuthority
from .lease import TimedLease
from .voter_set import ZOOKEEPER_ALONE, VoterSet

UNBOUNDED: Final = 1e9
"""A session timeout in seconds that bounds nothing."""


@dataclass(slots=True)
class LastBeacon:
    """The last beacon of one node."""

    broker_epoch: int
    incarnation: int
    sequence: int
    at: float
    """When it was received; never, once the node has said that it leaves."""
    received: float
    """When it was received, whatever it said."""
    missed: int = 0
    """Beacons of this incarnation that did not come, or came too late."""


@dataclass(slots=True)
class FailureDetector:
    """What a node does with beacons while it is controller; it listens all the time.

    A node is echoed only after :meth:`admit`: it has acknowledged a whole state of this
    controller, so nothing it may answer with is out of date. One that was suspected, or that this
    controller has just met, may believe that it leads what it lost long ago (docs/beacons.md
    point 5). It listens also before it is elected, so that a new controller knows at once who
    lives, and does not take silence for death that is only its own short memory.
    """

    cluster_id: str
    node_id: int
    times: BeaconTimes
    clock: Callable[[], float]
    send: Callable[[int, Echo], None]
    own_lease: TimedLease
    controller_authority: ControllerAuthority
    incarnation: Callable[[], int]
    """Of this node's beacons now."""
    on_round: list[Callable[[], None]] = field(default_factory=list)
    """Called when this controller has sent a round: whoever looks then costs no wake-up."""
    _heard: dict[int, LastBeacon] = field(default_factory=dict)
    _admitted: dict[int, int] = field(default_factory=dict)
    """Who is echoed, with the broker epoch it was admitted under."""
    _granted: dict[int, float] = field(default_factory=dict)
    """When each node was last echoed: its lease is over T later at the latest."""
    _left: dict[int, int] = field(default_factory=dict)
    """Who said that it leaves, with the broker epoch of then; longer than one term: a controller
    that stops says so before it gives up its role, and so before its successor begins."""

    @property
    def epoch(self) -> int:
        """Of this controller, 0 while it is none."""
        return self.controller_authority.epoch

    def begin(
        self, epoch: int, inherited: VoterSet | None = ZOOKEEPER_ALONE, session: float = UNBOUNDED
    ) -> None:
        """This node was elected; ``session`` is its own negotiated timeout in seconds.

        ``inherited`` binds the predecessor; None when nobody could read it.
        """
        self.controller_authority.begin(epoch, inherited, session)
        self._admitted.clear()
        self._granted.clear()

    def end(self) -> None:
        """This node is controller no longer."""
        self.controller_authority.end()
        self._admitted.clear()

    def checked(self, sent: float) -> None:
        """ZooKeeper confirmed the role in answer to a check that was sent at ``sent``."""
        if self.epoch:
            self.controller_authority.checked(sent)
            self._extend_own_lease()

    def round_sent(self, sent: float, vote: bool | None) -> None:
        """A round of beacons leaves; ``vote`` is this node's own acknowledgement of it."""
        if self.epoch:
            self.controller_authority.round_sent(sent, vote)
            self._extend_own_lease()
            for act in self.on_round:
                act()

    def receive_acknowledgement(self, ack: Acknowledgement) -> None:
        """A voter follows this controller, or did not yet know of a later one."""
        is_ours = ack.controller_id == self.node_id and ack.controller_epoch == self.epoch
        if is_ours and ack.incarnation == self.incarnation():
            self.controller_authority.acknowledged(
                ack.node_id, ack.sent_us / MICROSECONDS, is_final=ack.is_final
            )
            self._extend_own_lease()

    def authority_claim(self) -> AuthorityClaim:
        """What this node's own beacons say of its role."""
        left = self.controller_authority.end_at - self.clock()
        if not self.epoch or left <= 0:
            return AuthorityClaim(epoch=self.epoch)
        return AuthorityClaim(self.epoch, int(left * MICROSECONDS))

    def admit(self, node_id: int, broker_epoch: int) -> None:
        """The node has acknowledged the whole state; from now on it may answer."""
        self._admitted[node_id] = broker_epoch

    def stop_echoing(self, node_id: int) -> None:
        """Something this node leads is being moved, or it is suspected: echo it no more."""
        self._admitted.pop(node_id, None)

    def is_admitted(self, node_id: int) -> bool:
        """The node is echoed."""
        return node_id in self._admitted

    def take(self, beacon: Beacon) -> bool:
        """Note that a node lives, and let it answer for a while; False for a stale datagram."""
        known = self._heard.get(beacon.node_id)
        # A datagram that comes late, twice, or from a recording must not prove that a node lives:
        # within one incarnation the sequence grows, and from one to the next the broker epoch.
        if known is not None and beacon.incarnation == known.incarnation:
            if beacon.sequence <= known.sequence:
                return False
        elif known is not None and beacon.broker_epoch < known.broker_epoch:
            return False
        now, missed = self.clock(), 0
        if known is not None and beacon.incarnation == known.incarnation:
            missed = known.missed + self._missed_between(known.sequence, beacon.sequence)
        # A node that leaves gave up its lease before it said so: nobody waits T for it.
        at = -math.inf if beacon.is_leaving else now
        self._heard[beacon.node_id] = LastBeacon(
            beacon.broker_epoch, beacon.incarnation, beacon.sequence, at, now, missed
        )
        if beacon.is_leaving:
            self._left[beacon.node_id] = beacon.broker_epoch
            self.stop_echoing(beacon.node_id)
            self._granted[beacon.node_id] = -math.inf
        elif self._admitted.get(beacon.node_id) == beacon.broker_epoch:
            self._echo(beacon)
        return True

    def _missed_between(self, last: int, sequence: int) -> int:
        """Beacons that should have come between two: to a controller all, else one of a stride."""
        step = 1 if self.epoch else stride(self.times)
        return (sequence - 1) // step - last // step

    def silent(self, nodes: Mapping[int, int]) -> list[int]:
        """Of these nodes, by broker epoch, those that fell silent T ago: their leases are over.

        None without authority: who cannot be sure of being controller judges nobody. None before
        this controller is settled either: a predecessor may have extended leases that it knows
        nothing of. A node of which no beacon was heard since it was registered is judged by its
        session alone: a packet filter between two nodes is not a dead node. Ask after all datagrams
        that have come were taken: after a pause of this process they wait in the socket.
        """
        now = self.clock()
        if self.controller_authority.end_at <= now or not self.controller_authority.settle():
            return []
        return [node for node, epoch in nodes.items() if self._fell_silent(node, epoch, now)]

    def _fell_silent(self, node_id: int, broker_epoch: int, now: float) -> bool:
        heard = self._heard.get(node_id)
        if heard is None or heard.broker_epoch != broker_epoch:
            return False
        return now - heard.at >= self.times.timeout

    def has_left(self, node_id: int, broker_epoch: int) -> bool:
        """The process registered so gave up its lease and said that it leaves, whoever heard it."""
        return self._left.get(node_id) == broker_epoch

    def may_hold_lease(self, node_id: int) -> bool:
        """Whether a lease of this node may still last, whoever granted it."""
        return self.clock() < self.lease_over_at(node_id)

    def lease_over_at(self, node_id: int) -> float:
        """When a lease of this node is surely over if it is not echoed again."""
        if node_id == self.node_id:
            return self.own_lease.end
        granted = self._granted.get(node_id)
        if granted == -math.inf:  # it said that it leaves: its lease is over, whoever granted it
            return granted
        by_ours = -math.inf if granted is None else granted + self.times.timeout
        return (
            by_ours
            if self.controller_authority.settle()
            else max(by_ours, self.controller_authority.settled_by)
        )

    def is_heard(self, node_id: int, broker_epoch: int) -> bool:
        """A beacon of this registration came within T."""
        heard = self._heard.get(node_id)
        if heard is None or heard.broker_epoch != broker_epoch:
            return False
        return self.clock() - heard.at < self.times.timeout

    def need_not_check(self, nodes: Mapping[int, int]) -> bool:
        """Nothing hangs on ZooKeeper's word now, and nobody is about to be judged.

        ``nodes`` by broker epoch; each of them was heard within half of T.
        """
        if not self.controller_authority.is_backed_by_voters:
            return False
        latest = self.clock() - self.times.timeout / 2
        return all(
            node in self._heard
            and self._heard[node].broker_epoch == epoch
            and self._heard[node].at >= latest
            for node, epoch in nodes.items()
        )

    def heard(self) -> dict[int, tuple[float, int]]:
        """By node: seconds since its last beacon, and how many of its beacons were missed."""
        now = self.clock()
        return {
            node: (now - last.received, last.missed) for node, last in sorted(self._heard.items())
        }

    def takes_bundles(self, node_id: int) -> bool:
        """This node's last beacon said that it reads datagrams of two messages."""
        heard = self._heard.get(node_id)
        return heard is not None and bool(heard.incarnation & TAKES_BUNDLES)

    def was_heard_since(self, node_id: int, since: float) -> bool:
        """A beacon of this node came at ``since`` or later, by this node's clock."""
        heard = self._heard.get(node_id)
        return heard is not None and heard.received >= since

    def _extend_own_lease(self) -> None:
        # The controller leads offsets partitions, too, and its lease ends with its authority: it
        # gets no echo, so it must not answer longer than it lets others.
        if self._admitted.get(self.node_id) is None:
            return
        self.own_lease.extend(self.controller_authority.end_at - self.times.margin)
        if self.controller_authority.settle():
            self.own_lease.settle(self.epoch)

    def _echo(self, beacon: Beacon) -> None:
        validity = self.controller_authority.end_at - self.clock()
        if not self.epoch or validity <= 0:
            return
        echo = Echo(
            cluster_id=self.cluster_id,
            controller_id=self.node_id,
            controller_epoch=self.epoch,
            node_id=beacon.node_id,
            incarnation=beacon.incarnation,
            sent_us=beacon.sent_us,
            validity_us=int(validity * MICROSECONDS),
            is_settled=self.controller_authority.settle(),
        )
        # Noted before it is sent: an echo that is lost was granted all the same.
        self._granted[beacon.node_id] = self.clock()
        self.send(beacon.node_id, echo)
