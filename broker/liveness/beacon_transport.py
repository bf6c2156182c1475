"""The beacon transport: sends and receives one node's beacons on a UDP socket.

Source: docs/spec/reliability.md §3.1. The socket has the number of the nodes' own listener, in UDP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, cast

import asyncio_dgram

from barnabas.broker.runtime.latency import Latency
from barnabas.broker.settings.liveness_settings import BeaconTimes
from barnabas.protocol.beacon import (
    BYTES_MAX,
    TAKES_ACKNOWLEDGEMENTS,
    TAKES_BUNDLES,
    Acknowledgement,
    BadBeacon,
    Beacon,
    BeaconCodec,
    Echo,
    Message,
)

from .beacon_sender import MICROSECONDS, BeaconSender
from .controller_authority import ControllerAuthority
from .failure_detector import FailureDetector
from .lease import TimedLease
from .voter import Voter

log = logging.getLogger(__name__)

Address = tuple[str, int]
_INCARNATION_BITS: Final = 62
_WARN_AGAIN_S: Final = 60.0
"""How often refused datagrams are told of; anybody may send them."""
_LOOK_UP_AGAIN_S: Final = 5.0
"""A container that was started again has its name still, but another address."""


class BeaconTransport:
    """Sends and receives for :attr:`pulse`, :attr:`voter` and :attr:`vigil`: these hold every rule.

    ``peers`` gives the other nodes and where their INTERNAL listeners are; ``clock`` goes on while
    the machine sleeps.
    """

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        secret: str,
        previous_secret: str | None = None,
        times: BeaconTimes,
        clock: Callable[[], float],
        rng: random.Random,
        peers: Callable[[], Mapping[int, Address]],
        lease: TimedLease,
        votes: bool = True,
    ) -> None:
        self.is_sending = False
        """Whether this node says that it lives; it listens all the time."""
        self.refused = 0
        """Datagrams that were no beacons of this cluster."""
        self.echoes = Latency()
        """From sending a beacon until its echo is here."""
        self._clock = clock
        self._warn_at = 0.0
        self._codec = BeaconCodec(cluster_id, secret, previous_secret)
        self._times = times
        self._peers = peers
        self._socket: asyncio_dgram.DatagramServer | None = None
        self._resolved: dict[Address, tuple[Address, float]] = {}
        self._lookups: dict[Address, asyncio.Task[None]] = {}
        self._outgoing: dict[int, list[Message]] = {}
        """What is to be sent, by receiver."""
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._encoded: tuple[Message | None, bytes] = (None, b"")
        """What was encoded last: a round's beacon is the same for all."""
        self.voter = Voter(times, clock)
        self.votes = votes
        """Whether this node acknowledges controllers; those that cannot be elected do not."""
        self._cluster_id = cluster_id
        self._node_id = node_id
        self.beacon_sender = BeaconSender(
            cluster_id,
            node_id,
            times,
            clock,
            lease,
            self._post,
            lambda: TAKES_BUNDLES | TAKES_ACKNOWLEDGEMENTS | rng.getrandbits(_INCARNATION_BITS),
        )
        self.failure_detector = FailureDetector(
            cluster_id,
            node_id,
            times,
            clock,
            self._post,
            lease,
            ControllerAuthority(node_id, times, clock),
            lambda: self.beacon_sender.incarnation_now,
        )

    async def open(self, host: str, port: int) -> None:
        """Bind the socket; raises OSError when somebody else has it."""
        self._socket = await asyncio_dgram.bind((host, port))

    def close(self) -> None:
        """Give the socket back; :meth:`run` ends by being cancelled."""
        for lookup in self._lookups.values():
            lookup.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def run(self) -> None:
        """Beat and listen until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._beat_forever(), name="beats")
            tasks.create_task(self._listen(), name="beacons of others")

    async def leave(self) -> None:
        """Give up the lease and tell all others, so that nobody waits for its end."""
        self.is_sending = False
        self.beacon_sender.leave(self._peers())
        await self._flush()

    async def _beat_forever(self) -> None:
        """Send by the clock, as controller or while no controller's rounds come."""
        try:
            while True:
                if self.is_sending:
                    self._beat()
                    await self._flush()
                self._due.clear()
                self._set_timer()
                await self._due.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _set_timer(self) -> None:
        """Have the next beacons sent when they are due: a round that is answered puts that off."""
        if self._timer is not None:
            self._timer.cancel()
        is_controller = bool(self.failure_detector.epoch)
        wait_s = self._times.interval
        if self.is_sending:
            wait_s = self.beacon_sender.due_in(is_controller=is_controller)
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._due.set)

    def _beat(self) -> None:
        sent = self.beacon_sender.send_beacons(
            self._peers(), self.failure_detector.authority_claim()
        )
        if self.failure_detector.epoch:  # its own vote is as good as any, once it is listed
            vote = self.voter.acknowledge(self.failure_detector.epoch) if self.votes else None
            self.failure_detector.round_sent(sent, vote)

    async def _listen(self) -> None:
        while self._socket is not None:
            try:
                datagram, sender = await self._socket.recv()
            except asyncio_dgram.TransportClosed:
                return
            except OSError as problem:  # of a datagram sent earlier; see _forget_failures
                log.debug("a beacon was not sent: %s", problem)
                continue
            self._take(datagram, cast("Address", sender))
            await self._flush()

    def _take(self, datagram: bytes, sender: Address) -> None:
        try:
            messages = self._codec.decode_all(datagram)
        except BadBeacon as problem:
            self._refuse(sender, problem)
            return
        for message in messages:
            if isinstance(message, Echo):
                self.echoes.observe(self._clock() - message.sent_us / MICROSECONDS)
                self.beacon_sender.receive_echo(message)
            elif isinstance(message, Acknowledgement):
                self.failure_detector.receive_acknowledgement(message)
            elif self.failure_detector.take(message):
                self._take_beacon(message)

    def _take_beacon(self, beacon: Beacon) -> None:
        is_round = self.beacon_sender.receive_beacon(beacon)
        self._vote(beacon)
        if is_round and self.is_sending and not self.failure_detector.epoch:
            self._beat()
            self._set_timer()

    def _vote(self, beacon: Beacon) -> None:
        """Acknowledge a controller's round, if this node may."""
        if not (self.votes and beacon.controller_epoch and beacon.takes_acknowledgements):
            self.voter.saw(beacon.controller_epoch)
            return
        is_final = self.voter.acknowledge(beacon.controller_epoch)
        if is_final is None:
            return
        acknowledgement = Acknowledgement(
            cluster_id=self._cluster_id,
            node_id=self._node_id,
            controller_id=beacon.node_id,
            controller_epoch=beacon.controller_epoch,
            incarnation=beacon.incarnation,
            sent_us=beacon.sent_us,
            is_final=is_final,
        )
        self._post(beacon.node_id, acknowledgement)

    def _refuse(self, sender: Address, problem: BadBeacon) -> None:
        """Count it, and say so now and then: a node with another secret, or a stranger."""
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_AGAIN_S
            log.warning(
                "refused datagrams count=%d last_from=%s:%d reason='%s'",
                self.refused,
                *sender[:2],  # IPv6 adds two numbers
                problem,
            )

    def _post(self, receiver: int, message: Message) -> None:
        self._outgoing.setdefault(receiver, []).append(message)

    async def _flush(self) -> None:
        if not self._outgoing or self._socket is None:
            self._outgoing.clear()
            return
        outgoing, self._outgoing = self._outgoing, {}
        peers = self._peers()
        for receiver, messages in outgoing.items():
            address = self._address_of(peers.get(receiver))
            if address is None:
                continue
            for datagram in self._datagrams(receiver, messages):
                if self._socket is not None:
                    self._forget_failures(self._socket)
                    with contextlib.suppress(asyncio_dgram.TransportClosed, OSError):
                        await self._socket.send(datagram, address)

    def _datagrams(self, receiver: int, messages: Sequence[Message]) -> Iterable[bytes]:
        """One for all that this node is told now, if it can read that."""
        if len(messages) > 1 and self.failure_detector.takes_bundles(receiver):
            bundle = self._codec.encode_bundle(messages)
            if len(bundle) <= BYTES_MAX:
                return (bundle,)
        return map(self._encode_once, messages)

    def _encode_once(self, message: Message) -> bytes:
        known, datagram = self._encoded
        if known is not message:
            datagram = self._codec.encode(message)
            self._encoded = (message, datagram)
        return datagram

    def _forget_failures(self, own: asyncio_dgram.DatagramServer) -> None:
        """The socket tells of a datagram it could not send instead of sending the next one.

        A packet filter, a peer without a route: such a datagram is lost like any other.
        """
        while True:
            try:
                return own.exception
            except OSError as problem:
                log.debug("a beacon was not sent: %s", problem)

    def _address_of(self, place: Address | None) -> Address | None:
        """The numeric address; looked up beside this, and again from time to time."""
        if place is None:
            return None
        address, until = self._resolved.get(place, (None, 0.0))
        loop = asyncio.get_running_loop()
        if until <= loop.time() and place not in self._lookups:
            lookup = self._lookups[place] = loop.create_task(self._look_up(place))
            lookup.add_done_callback(lambda _: self._lookups.pop(place, None))
        return address

    async def _look_up(self, place: Address) -> None:
        loop = asyncio.get_running_loop()
        host, port = place
        try:
            answers = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        except (OSError, ValueError) as problem:  # ValueError: a label is empty or too long
            log.warning("found no address host=%s reason='%s'", host, problem)
            await asyncio.sleep(_LOOK_UP_AGAIN_S / 5)
            return
        numeric = str(answers[0][4][0])
        self._resolved[place] = ((numeric, port), loop.time() + _LOOK_UP_AGAIN_S)
