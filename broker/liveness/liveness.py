"""One node's lease, and what extends it: echoes of its beacons, or its ZooKeeper session.

Source: docs/spec/reliability.md §3.1 (a), (d) and (f). Beacons count while the controller sends
them, too; else the session does, and then this node is silent, so that nobody judges it by beacons.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.broker.runtime.latency import Latency
from barnabas.broker.settings.liveness_settings import DRIFT, LivenessSettings
from barnabas.client.zookeeper.interface import (
    Check,
    SessionState,
    ZooKeeper,
    ZooKeeperError,
    read_if_any,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.zookeeper import znodes

from .beacon_transport import Address, BeaconTransport
from .lease import Lease, TimedLease, UnlimitedLease
from .session_proofs import ProofTimer, SessionProofs

log = logging.getLogger(__name__)

RENEWAL: Final = 4
"""So many T a lease that ended by itself may be about to come back: until then a new controller
has been found, or somebody else was put in this node's place and its clients look for that one."""


class Liveness:
    """Makes the lease of one node and keeps it; ``peers`` are the other nodes' listeners."""

    def __init__(
        self,
        settings: LivenessSettings,
        zookeeper: ZooKeeper,
        *,
        node_id: int,
        cluster_id: str,
        secret: str | None,
        previous_secret: str | None = None,
        clock: Callable[[], float],
        rng: random.Random,
        peers: Callable[[], Mapping[int, Address]],
        is_candidate: bool = True,
    ) -> None:
        """``is_candidate``: the node can be elected controller, and so it votes for others."""
        self._settings = settings
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._clock = clock
        self._timed = TimedLease(clock)
        self._is_by_session = False
        self._broker_epoch = -1
        self._controller_id: int | None = None
        self._controller_since = 0.0
        """When the controller was seen to be one, by ``clock``."""
        self._controller_seen = asyncio.Event()
        self._judged = asyncio.Event()
        self._session_timer = ProofTimer(zookeeper)
        is_limited = settings.offsets_read_lease_ms is None
        self.lease: Lease = self._timed if is_limited else UnlimitedLease()
        self.beacons: BeaconTransport | None = None
        is_wanted = settings.beacon_enable
        if secret is not None and is_wanted is not False:
            self.beacons = BeaconTransport(
                node_id=node_id,
                cluster_id=cluster_id,
                secret=secret,
                previous_secret=previous_secret,
                times=settings.times,
                clock=clock,
                rng=rng,
                peers=peers,
                lease=self._timed,
                votes=is_candidate,
            )
        self._entitlement: SessionProofs | None = None
        if self.beacons is not None and is_candidate:
            self._entitlement = SessionProofs(self.beacons.voter, zookeeper, node_id, clock)
        zookeeper.on_state.append(self._session_changed)

    @property
    def votes(self) -> bool:
        """This node acknowledges controllers, which may have their authority from that."""
        return self.beacons is not None and self.beacons.votes

    @property
    def lease_kind(self) -> str:
        """What extends the lease: ``beacons``, ``session``, or ``none`` where it has no end."""
        if self.lease is not self._timed:
            return "none"
        return "session" if self._is_by_session else "beacons"

    @property
    def proofs(self) -> Latency | None:
        """How long proofs of the session take; None on a node that does not vote."""
        return None if self._entitlement is None else self._entitlement.proofs

    @property
    def failed_proofs(self) -> int:
        """Proofs of the session that failed, since the start."""
        return 0 if self._entitlement is None else self._entitlement.failed

    async def open(self, host: str, port: int) -> None:
        """Bind the beacons' socket; without it this node is judged by its session."""
        if self.beacons is None:
            return
        try:
            await self.beacons.open(host, port)
        except OSError as problem:
            log.error("sends no beacons: cannot bind UDP %s:%d: %s", host, port, problem)
            self.beacons = None

    def close(self) -> None:
        """Give the socket back."""
        if self.beacons is not None:
            self.beacons.close()

    def registered(self, broker_epoch: int) -> None:
        """The node holds a registration, the first or after a lost session."""
        self._broker_epoch = broker_epoch
        self._timed.drop()
        if self.beacons is not None:
            self.beacons.beacon_sender.begin_incarnation(broker_epoch)
        if self._entitlement is not None:
            self._entitlement.registered(broker_epoch)
        self._controller_seen.set()

    def controller_seen(self, controller_id: int | None) -> None:
        """Somebody was elected: from now on its silence counts, and its way of judging."""
        self._controller_id = controller_id
        self._controller_since = self._clock()
        if self.beacons is not None:
            self.beacons.beacon_sender.expect_controller()
        self._controller_seen.set()

    def problem(self) -> ErrorCode:
        """What a coordinator answers instead of an offset; NONE while the lease holds."""
        if self.lease.holds():
            return ErrorCode.NONE
        renewal_s = RENEWAL * self._settings.times.timeout
        if self._timed.was_held and not self._timed.ended_within(renewal_s):
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def when_lease_begins(self, act: Callable[[], None]) -> None:
        """Act each time this node may answer again that could not before."""
        self._timed.on_begun.append(act)

    def when_settled(self, controller_epoch: int, act: Callable[[], None]) -> None:
        """Act once nobody can still answer for what this controller let this node lead."""
        if self.lease.is_settled(controller_epoch):
            act()
        else:
            self._timed.waiting.append((controller_epoch, act))

    def forget_waiting(self) -> None:
        """What waits to be settled belongs to a life that is over."""
        self._timed.waiting.clear()

    def is_controller_silent(self) -> bool:
        """The controller sends beacons, and none came for T.

        Only of one that was heard at all, since it is controller or just before: who never hears
        the others (another secret, a packet filter) would depose one controller after the other.
        """
        beacons = self.beacons
        if beacons is None or not beacons.is_sending or self._controller_id is None:
            return False
        since = self._controller_since - self._settings.times.timeout
        if not beacons.failure_detector.was_heard_since(self._controller_id, since):
            return False
        return beacons.beacon_sender.is_controller_silent()

    def controller_silent_in(self) -> float:
        """Seconds in which :meth:`is_controller_silent` cannot become true.

        Where nobody is judged by beacons now, silence is counted for T from when that begins.
        """
        beacons = self.beacons
        if beacons is None or not beacons.is_sending or self._controller_id is None:
            return self._settings.times.timeout / 2
        return beacons.beacon_sender.silent_in()

    async def run(self) -> None:
        """Keep the lease until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_controller(), name="judge of this node")
            tasks.create_task(self._watch_session(), name="session lease")
            if self.beacons is not None:
                tasks.create_task(self.beacons.run(), name="beacons")
            if self._entitlement is not None:
                tasks.create_task(self._entitlement.run(), name="entitlement to vote")

    async def leave(self) -> None:
        """Give the lease up for good and say so."""
        self._is_by_session = False
        self._timed.drop()
        if self._entitlement is not None:  # another process may have this id before this one ends
            self._entitlement.lost()
        if self.beacons is not None and self.beacons.is_sending:
            await self.beacons.leave()

    def _session_changed(self, state: SessionState) -> None:
        """With the session the registration is over: others may be put in this node's place."""
        if state is SessionState.LOST:
            self._broker_epoch = -1
            self._timed.drop()
            if self._entitlement is not None:
                self._entitlement.lost()
            if self.beacons is not None:
                self.beacons.is_sending = False

    async def _follow_controller(self) -> None:
        while True:
            await self._controller_seen.wait()
            self._controller_seen.clear()
            if self._controller_id is None or self._broker_epoch < 0:
                continue
            try:
                is_beaconing = await self._sends_beacons(self._controller_id)
            except ZooKeeperError as problem:
                log.info("could not read how the controller judges: %r", problem)
                self._controller_seen.set()
                await asyncio.sleep(self._settings.times.interval)
                continue
            self._be_judged_by(is_beaconing)

    async def _sends_beacons(self, controller_id: int) -> bool:
        if self.beacons is None:
            return False
        if controller_id == self._node_id:
            return True
        found = await read_if_any(self._zookeeper, znodes.broker_path(controller_id))
        if found is None:  # it died meanwhile: as before, until the next is seen
            return self.beacons.is_sending
        try:
            return znodes.BrokerRegistration.from_json(found[0]).sends_beacons
        except ValueError:  # others ignore it, too
            return self.beacons.is_sending

    def _be_judged_by(self, is_beaconing: bool) -> None:
        if self.beacons is not None and is_beaconing and not self.beacons.is_sending:
            if self._is_by_session:
                self._timed.drop()
                self._timed.unsettle()
            self.beacons.beacon_sender.expect_controller()
            self.beacons.is_sending = True
        elif self.beacons is not None and not is_beaconing:
            self.beacons.is_sending = False
        if self._is_by_session == is_beaconing:
            log.info("leases come with %s", "beacons" if is_beaconing else "the session")
        self._is_by_session = not is_beaconing
        self._judged.set()
        self._session_timer.hurry()

    async def _watch_session(self) -> None:
        path = znodes.broker_path(self._node_id)
        while True:
            if not self._is_by_session:
                self._judged.clear()
                await self._judged.wait()
            await self._session_timer.wait()
            if self._is_by_session:
                await self._extend_by_session(path, self._zookeeper.session_timeout_ms / 1000)

    async def _extend_by_session(self, path: str, timeout_s: float) -> None:
        sent, epoch = self._clock(), self._broker_epoch
        try:
            await self._zookeeper.multi(Check(path, -1))  # a read proves nothing: see SessionProofs
            stat = await self._zookeeper.exists(path)
        except ZooKeeperError as problem:
            log.debug("the session was not confirmed: %r", problem)
            return
        is_ours = stat is not None and stat.czxid == epoch == self._broker_epoch
        if is_ours and self._is_by_session:
            self._timed.settle(_ANY_EPOCH)
            self._timed.extend(sent + timeout_s * (1 - DRIFT))


_ANY_EPOCH: Final = 2**31
"""With session leases nobody is replaced while its session lasts: nothing has to settle."""
