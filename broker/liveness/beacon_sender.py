"""The beacon sender: beacons to all others, and the lease that the controller's echoes extend.

Also what a node makes of the controller's own beacons: a coordinator that hears nothing of it for
T may take the role over.

Source: docs/spec/reliability.md §3.1 (a) and (d); docs/beacons.md points 1, 4 and 16. Pure:
datagrams and times come in, datagrams go out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.beacon import Beacon, Echo

from .lease import TimedLease

MICROSECONDS = 1e6
IN_STEP_INTERVALS: Final = 1.5
"""So many intervals a node waits for the controller's next round before it sends by itself."""
AUTHORITY_LOSS_TIMEOUTS = 4
"""So many T may a controller be without authority before others try to do better."""


@dataclass(slots=True)
class AuthorityClaim:
    """What a node that is controller says of that; zeros when it is not."""

    epoch: int = 0
    left_us: int = 0


def stride(times: BeaconTimes) -> int:
    """Of so many rounds in step a node that is not controller is sent one: every T/3 or sooner."""
    return max(1, int(times.timeout / (3 * times.interval)))


@dataclass(slots=True)
class BeaconSender:
    """One node's beacons; ``send`` takes the receiver's id and the message.

    ``clock`` is the one of the lease. ``incarnation`` gives a fresh random number.
    """

    cluster_id: str
    node_id: int
    times: BeaconTimes
    clock: Callable[[], float]
    lease: TimedLease
    send: Callable[[int, Beacon], None]
    incarnation: Callable[[], int]
    broker_epoch: int = -1
    _life: int = 0
    _sequence: int = 0
    _first_sent: float = math.inf
    _epoch: int = 0
    _heard: float = field(default=-math.inf)
    _alive: float = field(default=-math.inf)
    _sent: float = field(default=-math.inf)
    """When the last beacons were sent."""
    _controller: int = -1
    """Whose beacons said last that they are the controller's; -1 when another was elected since."""
    _has_voters: bool = False
    """The controller has its authority from voters, or will have: ZooKeeper's stalls pass by."""

    def begin_incarnation(self, broker_epoch: int) -> None:
        """The node was registered: no lease of an earlier registration counts any more.

        A fresh random number tells echoes to this life from those to the one before, which may
        still be on their way, and would extend a lease that others wait for the end of.
        """
        self.lease.drop()
        self.broker_epoch = broker_epoch
        self._life = self.incarnation()
        self._sequence = 0
        self._first_sent = math.inf
        self.expect_controller()

    @property
    def incarnation_now(self) -> int:
        """The one that beacons carry now."""
        return self._life

    def send_beacons(self, receivers: Iterable[int], authority: AuthorityClaim) -> float:
        """Say to the others that this node lives; when that was, by ``clock``.

        To the controller with every round; nodes that are not controller are told every third
        part of T only, since nobody judges by what they hear before they are elected, and every
        node answers the first round of whoever is elected.
        """
        if authority.epoch or self._is_controller_missed():
            return self._send_all(receivers, authority, is_leaving=False)
        if (self._sequence + 1) % stride(self.times):
            receivers = [one for one in receivers if one == self._controller]
        return self._send_all(receivers, authority, is_leaving=False)

    def leave(self, receivers: Iterable[int]) -> None:
        """Say to all others that this node stops; its lease is over before they hear it."""
        self.lease.drop()
        self._send_all(receivers, AuthorityClaim(), is_leaving=True)
        self._life = self.incarnation()

    def receive_echo(self, echo: Echo) -> None:
        """The controller heard a beacon of ours: the lease counts from when that was sent."""
        now = self.clock()
        sent = echo.sent_us / MICROSECONDS
        if echo.node_id != self.node_id or echo.incarnation != self._life:
            return
        # An echo of a controller that was replaced, or of a beacon that was never sent here.
        if echo.controller_epoch < self._epoch or not self._first_sent <= sent <= now:
            return
        self._epoch = echo.controller_epoch
        if echo.validity_us <= 0:
            return
        self._heard = self._alive = now
        validity = echo.validity_us / MICROSECONDS
        if echo.is_settled:
            self.lease.settle(echo.controller_epoch)
        # From when the beacon was sent, and no longer than the controller itself is sure of its
        # role; the margin makes up for clocks that drift (docs/beacons.md points 1 and 3).
        self.lease.extend(sent + min(self.times.timeout, validity) - self.times.margin)

    def receive_beacon(self, beacon: Beacon) -> bool:
        """Another node lives; if it is the controller, that is not silent.

        True when beacons are to be sent in answer now: nodes send theirs in step with the
        controller's rounds, so that one wake-up of a node serves both, and an echo comes back
        right after the acknowledgement that it counts from (docs/beacons.md, "In step").
        """
        if not beacon.controller_epoch or beacon.controller_epoch < self._epoch:
            return False
        self._epoch = beacon.controller_epoch
        self._controller = beacon.node_id
        self._alive = self.clock()
        self._has_voters = beacon.takes_acknowledgements
        if beacon.authority_us > 0:
            self._heard = self._alive
        # Rounds that waited in the socket while this node was paused are answered once.
        return self._alive - self._sent >= self.times.interval / 2

    def due_in(self, *, is_controller: bool) -> float:
        """Seconds until beacons are to be sent, if no round of the controller comes before.

        A node in step leaves the controller half an interval more, so that it does not send by
        itself just before the round that it would answer.
        """
        now = self.clock()
        is_followed = self._controller >= 0 and not is_controller
        in_step = is_followed and now - self._alive <= IN_STEP_INTERVALS * self.times.interval
        intervals = IN_STEP_INTERVALS if in_step else 1.0
        return max(0.0, self._sent + intervals * self.times.interval - now)

    def silent_in(self) -> float:
        """Seconds in which :meth:`is_controller_silent` cannot become true."""
        at = self._alive + self.times.timeout
        if not self._has_voters:
            at = min(at, self._heard + AUTHORITY_LOSS_TIMEOUTS * self.times.timeout)
        return max(0.0, at - self.clock())

    def expect_controller(self) -> None:
        """Somebody was elected just now: the silence is counted from here."""
        self._heard = self._alive = self.clock()
        self._controller = -1

    def is_controller_silent(self) -> bool:
        """The controller was not heard for T, or has had no authority for PATIENCE times T.

        Without authority it waits for ZooKeeper, and a successor might wait as long. One that may
        have authority from voters is left to its session.
        """
        now, timeout = self.clock(), self.times.timeout
        if now - self._alive > timeout:
            return True
        return not self._has_voters and now - self._heard > AUTHORITY_LOSS_TIMEOUTS * timeout

    def _is_controller_missed(self) -> bool:
        """No round came when one should have: whoever takes over has to know who lives."""
        return self._controller < 0 or self.clock() - self._alive > 2 * self.times.interval

    def _send_all(
        self, receivers: Iterable[int], authority: AuthorityClaim, *, is_leaving: bool
    ) -> float:
        self._sequence += 1
        self._sent = self.clock()
        now_us = int(self._sent * MICROSECONDS)
        self._first_sent = min(self._first_sent, now_us / MICROSECONDS)
        beacon = Beacon(
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            broker_epoch=self.broker_epoch,
            incarnation=self._life,
            sequence=self._sequence,
            sent_us=now_us,
            is_leaving=is_leaving,
            controller_epoch=authority.epoch,
            authority_us=authority.left_us,
        )
        for receiver in receivers:
            self.send(receiver, beacon)
        return now_us / MICROSECONDS
