"""Session proofs: what a node asks of ZooKeeper so that it may vote, or hold a session lease.

Source: docs/spec/reliability.md §3.1 (c') and (f); docs/beacons.md point 11 (c) and (d), "How long
ZooKeeper may be away".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable

from barnabas.broker.runtime.latency import Latency
from barnabas.broker.settings.liveness_settings import proof_interval_s
from barnabas.client.zookeeper.interface import (
    Check,
    SessionState,
    ZooKeeper,
    ZooKeeperError,
    read_if_any,
)
from barnabas.protocol.zookeeper import znodes

from .voter import Voter

log = logging.getLogger(__name__)


class ProofTimer:
    """When the session is to be proved again.

    What a proof is worth counts from when it was sent, so the interval does, too: after a slow
    answer, or one that never came, the next proof is sent at once. During a stall one proof is
    therefore always on its way, and the first thing that ZooKeeper answers when it is back. A
    proof that fails together with its connection is sent again over the next one, without waiting
    for the interval: what is left of a lease then may be shorter than that.
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._sent = -math.inf
        self._hurried = asyncio.Event()
        zookeeper.on_state.append(self._session_changed)

    def hurry(self) -> None:
        """Let the next proof be due now."""
        self._hurried.set()

    async def wait(self) -> None:
        """Return when a proof is due; it is taken to be sent then."""
        loop = asyncio.get_running_loop()
        interval_s = proof_interval_s(self._zookeeper.session_timeout_ms / 1000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._sent + interval_s):
                await self._hurried.wait()
        self._hurried.clear()
        self._sent = loop.time()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.hurry()


class SessionProofs:
    """Keeps one voter entitled to vote in every registration that its node holds."""

    def __init__(
        self, voter: Voter, zookeeper: ZooKeeper, node_id: int, clock: Callable[[], float]
    ) -> None:
        self._voter = voter
        self._zookeeper = zookeeper
        self._path = znodes.broker_path(node_id)
        self._clock = clock
        self.proofs = Latency()
        """From sending a proof of the session until ZooKeeper answered it."""
        self.failed = 0
        """Proofs that were not answered, or refused."""
        self._broker_epoch = -1
        self._timer = ProofTimer(zookeeper)

    def registered(self, broker_epoch: int) -> None:
        """The node holds a new registration."""
        self._broker_epoch = broker_epoch
        self._voter.registered(broker_epoch)
        self._timer.hurry()

    def lost(self) -> None:
        """The registration is gone, or about to be given up."""
        self._broker_epoch = -1
        self._voter.lost()

    async def run(self) -> None:
        """Ask ZooKeeper until cancelled."""
        read_in = -1
        while True:
            await self._timer.wait()
            epoch = self._broker_epoch
            try:
                if epoch >= 0 and read_in != epoch:
                    await self._read_epoch(epoch)
                    read_in = epoch
                if epoch >= 0:
                    await self._prove(epoch)
            except (ZooKeeperError, ValueError) as problem:
                self.failed += 1
                log.info("could not prove the session: %r", problem)

    async def _read_epoch(self, broker_epoch: int) -> None:
        """Of the session that the registration was made in, so not older than that."""
        found = await read_if_any(self._zookeeper, znodes.CONTROLLER_EPOCH)
        self._voter.read(int(found[0]) if found else 0, broker_epoch)

    async def _prove(self, broker_epoch: int) -> None:
        """By a write: a server that is cut off from its leader goes on answering reads."""
        sent, session_s = self._clock(), self._zookeeper.session_timeout_ms / 1000
        await self._zookeeper.multi(Check(self._path, -1))
        self._voter.proved(sent, session_s, broker_epoch)
        self.proofs.observe(self._clock() - sent)
