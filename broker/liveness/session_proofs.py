"""Session proofs: what a voter asks of ZooKeeper before and while it may vote.

Source: docs/spec/reliability.md §3.1 (c'); docs/beacons.md point 11 (c) and (d).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from barnabas.broker.runtime.latency import Latency
from barnabas.client.zookeeper.interface import Check, ZooKeeper, ZooKeeperError, read_if_any
from barnabas.protocol.zookeeper import znodes

from .voter import Voter

log = logging.getLogger(__name__)

PROOFS_PER_SESSION: Final = 18
"""How often a session timeout the session is proved; a stall may last 0.9 of it, less this."""
PROOF_INTERVAL_S_MIN: Final = 0.5
"""But no more often, where sessions are short: each proof is a write."""
PROOFS_PER_SESSION_MIN: Final = 6
"""Proofs a session timeout, however short."""


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
        self._changed = asyncio.Event()

    def registered(self, broker_epoch: int) -> None:
        """The node holds a new registration."""
        self._broker_epoch = broker_epoch
        self._voter.registered(broker_epoch)
        self._changed.set()

    def lost(self) -> None:
        """The registration is gone, or about to be given up."""
        self._broker_epoch = -1
        self._voter.lost()

    async def run(self) -> None:
        """Ask ZooKeeper until cancelled."""
        read_in = -1
        while True:
            epoch = self._broker_epoch
            self._changed.clear()
            try:
                if epoch >= 0 and read_in != epoch:
                    await self._read_epoch(epoch)
                    read_in = epoch
                if epoch >= 0:
                    await self._prove(epoch)
            except (ZooKeeperError, ValueError) as problem:
                self.failed += 1
                log.info("could not prove the session: %r", problem)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._changed.wait()

    def _pause_s(self) -> float:
        session_s = self._zookeeper.session_timeout_ms / 1000
        return min(
            max(session_s / PROOFS_PER_SESSION, PROOF_INTERVAL_S_MIN),
            session_s / PROOFS_PER_SESSION_MIN,
        )

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
