"""One voter: which controller epochs a node acknowledges, and what that excludes.

Source: docs/spec/reliability.md §3.1 (c'); docs/beacons.md point 11. Pure: epochs, times and proofs
of the session come in, acknowledgements go out.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.broker.settings.liveness_settings import DRIFT, BeaconTimes

from .voter_set import NEVER


class Voter:
    """One process of a node; every coordinator that sends beacons has one, listed or not.

    ``clock`` is the one of the lease.
    """

    __slots__ = (
        "_acknowledged_at",
        "_acknowledged_epoch",
        "_broker_epoch",
        "_clock",
        "_has_read",
        "_highest",
        "_lower_at",
        "_proved_until",
        "_times",
        "given",
        "refused",
    )

    def __init__(self, times: BeaconTimes, clock: Callable[[], float]) -> None:
        self.given = self.refused = 0
        """How often this node acknowledged a controller, and how often it had to refuse."""
        self._times = times
        self._clock = clock
        self._broker_epoch = -1
        self._highest = 0
        self._has_read = False
        self._proved_until = NEVER
        self._acknowledged_epoch = 0
        self._acknowledged_at = NEVER
        self._lower_at = NEVER
        """When an epoch below the one acknowledged last may have been acknowledged last."""

    def registered(self, broker_epoch: int) -> None:
        """The node holds a new registration.

        An earlier process may have acknowledged anything until now. The session that it did so in
        is over, so it does no longer.
        """
        self._broker_epoch = broker_epoch
        self._lower_at = self._clock()
        self._has_read = False
        self._proved_until = NEVER

    def lost(self) -> None:
        """The session is over: another process may have this node's id from now on."""
        self._broker_epoch = -1
        self._has_read = False
        self._proved_until = NEVER

    def read(self, epoch: int, broker_epoch: int) -> None:
        """``/controller_epoch``, as read after the registration ``broker_epoch`` was made."""
        self.saw(epoch)
        if broker_epoch == self._broker_epoch:
            self._has_read = True

    def proved(self, sent: float, session_s: float, broker_epoch: int) -> None:
        """ZooKeeper answered a write of the registration's session that was sent at ``sent``.

        A read proves nothing: a server cut off from its leader answers it, too.
        """
        if broker_epoch == self._broker_epoch:
            self._proved_until = max(self._proved_until, sent + session_s * (1 - DRIFT))

    def saw(self, epoch: int) -> None:
        """A controller of this epoch exists, so no lower one is acknowledged any more."""
        self._highest = max(self._highest, epoch)

    def acknowledge(self, epoch: int) -> bool | None:
        """Vote for a controller epoch now: None when refused, True when the vote is final.

        Final means that no lower epoch was acknowledged for T; none ever will be.
        """
        self.saw(epoch)
        now = self._clock()
        if not self._has_read or now >= self._proved_until or epoch < self._highest:
            self.refused += 1
            return None
        self.given += 1
        if epoch > self._acknowledged_epoch:
            self._lower_at = max(self._lower_at, self._acknowledged_at)
            self._acknowledged_epoch = epoch
        self._acknowledged_at = now
        return now - self._lower_at >= self._times.timeout
