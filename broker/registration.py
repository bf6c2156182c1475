"""This node's place under ``/brokers/ids``: taken at the start, kept over session expiries.

Source: cluster.md sections 1.2 and 1.10.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from barnabas.client.ensemble import (
    BadVersion,
    ConnectionLost,
    Create,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    Set,
    Stat,
    ZooKeeper,
)
from barnabas.protocol import znodes

from .identity import read_session, write_session
from .storage.files import Files, StorageError

log = logging.getLogger(__name__)

GRACE_MS: Final = 2000
"""Waited beyond the session timeout for a former life's registration to go away."""


class AlreadyRegistered(Exception):  # noqa: N818 - what is the matter
    """Another process holds this node's id or one of its endpoints; the text says what to do."""


class Registration:
    """The ephemeral znode that says that this node is alive, and where.

    ``session_directory`` is a log directory: its lock, which is held, proves that the
    process whose session is noted there is dead, so what that session left behind is removed
    at once instead of waiting for its timeout.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        node_id: int,
        payload: znodes.BrokerRegistration,
        *,
        files: Files,
        session_directory: Path,
        grace_ms: int = GRACE_MS,
    ) -> None:
        self.broker_epoch = -1
        """The czxid of the registration; -1 before the first."""
        self.former_session = read_session(files, session_directory)
        """The session of this node's life before this process, None when unknown."""
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._payload = payload
        self._files = files
        self._grace_ms = grace_ms
        self._session_directory = session_directory
        self._own_sessions = set() if self.former_session is None else {self.former_session}
        self._path = znodes.broker_path(node_id)

    async def register(self) -> None:
        """Take the place; waits out a former life whose session has not timed out yet.

        Raises AlreadyRegistered when the id stays taken, or an endpoint is another node's.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._zookeeper.session_timeout_ms + self._grace_ms) / 1000
        while True:
            await self._refuse_taken_endpoints()
            gone = asyncio.Event()
            if await self._attempt(gone):
                return
            log.warning("waited for a former registration to time out node=%d", self._node_id)
            try:
                async with asyncio.timeout_at(deadline):
                    await gone.wait()
            except TimeoutError:
                raise AlreadyRegistered(
                    f"broker.id={self._node_id} is already registered in ZooKeeper at "
                    f"{self._path}. Either another node runs with this id (give each its own), "
                    "or this node was restarted before its old session timed out (start again "
                    "in a moment)."
                ) from None

    async def _attempt(self, gone: asyncio.Event) -> bool:
        """Register; False when the id is somebody's, and then ``gone`` is set as it changes."""
        while True:
            try:
                results = await self._zookeeper.multi(
                    Create(self._path, ephemeral=True),
                    Set(self._path, self._payload.to_json(), 0),
                )
                self._registered(results[1])
                return True
            except MultiFailed as failed:
                if not isinstance(failed.error, NodeExists):
                    raise failed.error from None
            except ConnectionLost:
                log.warning("registered or not: the answer was lost node=%d", self._node_id)
            stat = await self._zookeeper.exists(self._path, gone.set)
            if stat is None:
                continue
            if stat.ephemeral_owner == self._zookeeper.session_id:
                self._registered(stat)
                return True
            if stat.ephemeral_owner not in self._own_sessions:
                return False
            await self._bury(stat)

    def _registered(self, stat: Stat) -> None:
        self.broker_epoch = stat.czxid
        self._own_sessions.add(stat.ephemeral_owner)
        try:
            write_session(self._files, self._session_directory, stat.ephemeral_owner)
        except StorageError as error:
            log.warning("the next start will have to wait for this session's timeout: %s", error)
        log.info("registered node=%d epoch=%d", self._node_id, self.broker_epoch)

    async def _bury(self, stat: Stat) -> None:
        """Remove what a session of our own left behind, which nobody else can mean."""
        log.info("removed a registration of a former life node=%d", self._node_id)
        try:
            await self._zookeeper.delete(self._path, stat.version)
        except (NoNode, BadVersion, ConnectionLost):
            log.debug("the former registration went by itself node=%d", self._node_id)

    async def _refuse_taken_endpoints(self) -> None:
        mine = set(self._payload.endpoints.values())
        for name in await self._zookeeper.children(znodes.BROKER_IDS):
            if name == str(self._node_id):
                continue
            try:
                data, _stat = await self._zookeeper.get(f"{znodes.BROKER_IDS}/{name}")
                taken = mine & set(znodes.BrokerRegistration.from_json(data).endpoints.values())
            except (NoNode, ValueError):
                continue
            if taken:
                host, port = min(taken)
                raise AlreadyRegistered(
                    f"{host}:{port} is already registered by node {name}: two nodes cannot be "
                    "known by one address; change advertised.listeners of one of them"
                )


class SessionRenewal:
    """What is done again, in order, whenever ZooKeeper gave a new session for an expired one.

    Ephemeral znodes and watches went with the old session. The controller resigned when it was
    told that the session is over, before anything of the new one.
    """

    def __init__(
        self, zookeeper: ZooKeeper, steps: Sequence[Callable[[], Awaitable[None]]]
    ) -> None:
        self._zookeeper = zookeeper
        self._steps = steps
        self._is_due = False
        self._connected = asyncio.Event()
        zookeeper.on_state.append(self._session_changed)

    async def run(self) -> None:
        """Take the steps after each expiry, until cancelled; a step's own failure is raised.

        Steps that an outage interrupts are all taken again once there is a connection.
        """
        while True:
            await self._connected.wait()
            self._connected.clear()
            if not self._is_due:
                continue
            self._is_due = False
            try:
                for step in self._steps:
                    await step()
            except (SessionExpired, ConnectionLost) as error:
                log.warning("did not come back yet: %r", error)
                self._is_due = True
                if self._zookeeper.state is SessionState.CONNECTED:
                    self._connected.set()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._is_due = True
        elif state is SessionState.CONNECTED:
            self._connected.set()
