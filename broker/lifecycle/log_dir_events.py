"""A node tells the controller that its disks serve other replicas than before.

Source: docs/spec/cluster.md §1.6 and §2.6. Kafka says so when a log directory fails; we say so too
when a full disk has room again, for what could not be created then.
"""

from __future__ import annotations

import asyncio
import logging

from barnabas.client.zookeeper.interface import SessionState, ZooKeeper, ZooKeeperError
from barnabas.protocol.zookeeper import znodes

log = logging.getLogger(__name__)


class LogDirEvents:
    """Writes one note for whatever changed since the last one."""

    def __init__(self, zookeeper: ZooKeeper, node_id: int) -> None:
        self._zookeeper = zookeeper
        self._payload = znodes.LogDirEvent(broker=node_id).to_json()
        self._is_due = False
        self._look = asyncio.Event()
        zookeeper.on_state.append(self._session_changed)

    def notify(self) -> None:
        """Have a note written soon."""
        self._is_due = True
        self._look.set()

    async def run(self) -> None:
        """Write the notes until cancelled; one that an outage hinders is written after it."""
        while True:
            await self._look.wait()
            self._look.clear()
            if not self._is_due:
                continue
            self._is_due = False
            try:
                await self._zookeeper.create(
                    znodes.LOG_DIR_EVENT_PREFIX, self._payload, sequence=True
                )
            except ZooKeeperError as error:
                log.warning("could not tell of a changed disk: %r", error)
                self._is_due = True

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._look.set()
