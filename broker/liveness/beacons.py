"""One node's beacons on a real socket: a round every 50 ms, and what comes in handed on.

Source: reliability.md section 3.1. The socket has the number of the nodes' own listener, in UDP.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
from collections.abc import Callable, Mapping
from typing import Final

import asyncio_dgram

from barnabas.protocol.beacon import BadBeacon, Beacon, BeaconCodec, Echo

from .lease import TimedLease
from .pulse import Pulse
from .settings import BeaconTimes
from .vigil import Vigil

log = logging.getLogger(__name__)

Address = tuple[str, int]
_INCARNATION_BITS: Final = 62
_LOOK_UP_AGAIN_S: Final = 5.0
"""A container that was started again has its name still, but another address."""


class Beacons:
    """Sends and receives for :attr:`pulse` and :attr:`vigil`, which hold every rule.

    ``peers`` gives the other nodes and where their INTERNAL listeners are; ``clock`` goes on while
    the machine sleeps.
    """

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        secret: str,
        times: BeaconTimes,
        clock: Callable[[], float],
        chance: random.Random,
        peers: Callable[[], Mapping[int, Address]],
        lease: TimedLease,
    ) -> None:
        self.is_beating = False
        """Whether this node says that it lives; it listens all the time."""
        self.refused = 0
        """Datagrams that were no beacons of this cluster."""
        self._codec = BeaconCodec(cluster_id, secret)
        self._times = times
        self._peers = peers
        self._socket: asyncio_dgram.DatagramServer | None = None
        self._resolved: dict[Address, tuple[Address, float]] = {}
        self._lookups: dict[Address, asyncio.Task[None]] = {}
        self._outgoing: list[tuple[int, bytes]] = []
        self.pulse = Pulse(
            cluster_id,
            node_id,
            times,
            clock,
            lease,
            self._post,
            lambda: chance.getrandbits(_INCARNATION_BITS),
        )
        self.vigil = Vigil(cluster_id, node_id, times, clock, self._post, lease)

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
        self.is_beating = False
        self.pulse.leave(self._peers())
        await self._flush()

    async def _beat_forever(self) -> None:
        while True:
            if self.is_beating:
                self.pulse.beat(self._peers(), self.vigil.authority())
                await self._flush()
            await asyncio.sleep(self._times.interval)

    async def _listen(self) -> None:
        while self._socket is not None:
            try:
                datagram, _ = await self._socket.recv()
            except asyncio_dgram.TransportClosed:
                return
            except OSError as problem:  # of a datagram sent earlier; see _forget_failures
                log.debug("a beacon was not sent: %s", problem)
                continue
            self._take(datagram)
            await self._flush()

    def _take(self, datagram: bytes) -> None:
        try:
            message = self._codec.decode(datagram)
        except BadBeacon as problem:
            self.refused += 1
            log.debug("refused a datagram reason='%s'", problem)
            return
        if isinstance(message, Echo):
            self.pulse.take_echo(message)
        elif self.vigil.take(message):
            self.pulse.take_beacon(message)

    def _post(self, receiver: int, message: Beacon | Echo) -> None:
        self._outgoing.append((receiver, self._codec.encode(message)))

    async def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if not outgoing or self._socket is None:
            return
        peers = self._peers()
        for receiver, datagram in outgoing:
            address = self._address_of(peers.get(receiver))
            if address is not None and self._socket is not None:
                self._forget_failures(self._socket)
                with contextlib.suppress(asyncio_dgram.TransportClosed, OSError):
                    await self._socket.send(datagram, address)

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
        except OSError as problem:
            log.warning("found no address host=%s reason='%s'", host, problem)
            await asyncio.sleep(_LOOK_UP_AGAIN_S / 5)
            return
        numeric = str(answers[0][4][0])
        self._resolved[place] = ((numeric, port), loop.time() + _LOOK_UP_AGAIN_S)
