"""This node's place under ``/brokers/ids``: taken at the start, kept over session expiries.

Source: docs/spec/cluster.md §1.2 and §1.10; docs/decisions/0004 (a registration that was left
behind).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from barnabas.broker.storage.files import Files, StorageError
from barnabas.client.zookeeper.interface import (
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
from barnabas.protocol.zookeeper import znodes

from .node_identity import read_session, write_session
from .peer_compatibility import Peers, PeerVerdict, RegisteredPeer

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
        peers: Peers,
        *,
        files: Files,
        session_directory: Path,
        grace_ms: int = GRACE_MS,
    ) -> None:
        self.broker_epoch = -1
        """The czxid of the registration; -1 before the first."""
        self.former_session = read_session(files, session_directory)
        """The session of this node's life before this process, None when unknown."""
        self._session: int | None = None
        """The one that the registration was last made in."""
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._payload = payload
        self._peers = peers
        self._files = files
        self._grace_ms = grace_ms
        self._session_directory = session_directory
        self._own_sessions = set() if self.former_session is None else {self.former_session}
        self._path = znodes.broker_path(node_id)

    @property
    def is_held(self) -> bool:
        """Registered, and in the present session: not before a lost one is made good."""
        return self._session == self._zookeeper.session_id

    async def register(self) -> None:
        """Take the place; waits out a former life whose session has not timed out yet.

        At the first time also for the other nodes' word that this one is one of theirs. Raises
        AlreadyRegistered when the id is another live node's or stays taken, or when an endpoint is
        another node's; PeerRefused.
        """
        is_first = self.broker_epoch < 0
        deadline = None
        is_accepted = False
        while True:
            await self._refuse_taken_endpoints()
            gone = asyncio.Event()
            holder = await self._holder(gone)
            if holder is not None:
                deadline = deadline or self._deadline()
                await self._wait_for(holder, gone, deadline)
                continue
            # After our own former registration is gone: nodes that were killed together would
            # otherwise wait for each other's.
            if is_first:
                is_accepted = await self._peers.await_acceptance()
            else:
                await self._peers.refuse_if_refused()
            if await self._attempt():
                break
        if is_first and not is_accepted:
            # Who registered at the same moment, but before us, has not been asked.
            await self._peers.await_acceptance(before=self.broker_epoch)

    async def update(self, payload: znodes.BrokerRegistration) -> None:
        """Tell of other endpoints under the same registration: session and epoch stay.

        The controller watches the znode and tells all nodes. Raises AlreadyRegistered when an
        endpoint is another node's, and tells of the former ones then; ZooKeeperError, and then
        the next call or the next registration tells of the new ones.
        """
        former, self._payload = self._payload, payload
        try:
            await self._refuse_taken_endpoints()
        except AlreadyRegistered:
            self._payload = former
            raise
        stat = await self._zookeeper.exists(self._path)
        if stat is None or stat.ephemeral_owner != self._zookeeper.session_id:
            return  # the session is over: whoever registers anew tells it
        await self._zookeeper.set(self._path, payload.to_json(), stat.version)
        log.info("told of other endpoints node=%d endpoints=%s", self._node_id, payload.endpoints)

    async def _holder(self, gone: asyncio.Event) -> RegisteredPeer | None:
        """Who holds our id in a session that is not ours, and then ``gone`` is set as it changes.

        What a former life of ours left behind is removed.
        """
        while True:
            stat = await self._zookeeper.exists(self._path, gone.set)
            if stat is None or stat.ephemeral_owner == self._zookeeper.session_id:
                return None
            try:
                data, _ = await self._zookeeper.get(self._path)
                registration = znodes.BrokerRegistration.from_json(data)
            except NoNode:
                continue
            except ValueError:
                registration = znodes.BrokerRegistration(endpoints={}, timestamp=stat.ctime_ms)
            holder = RegisteredPeer(self._node_id, stat.czxid, registration)
            if stat.ephemeral_owner not in self._own_sessions:
                return holder
            if stat.ephemeral_owner == self.former_session:
                await self._refuse_original(holder)
            await self._bury(stat)

    async def _refuse_original(self, holder: RegisteredPeer) -> None:
        """Raise AlreadyRegistered when the life before this one, as its directory says, answers.

        It is dead where the directory is the one it had locked. It lives where this one is a clone
        of its volume, mounted at the same path elsewhere: then its registration must stay.
        """
        places = set(holder.registration.endpoints.values())
        if places & set(self._payload.endpoints.values()):
            return  # its ports are in our hands
        try:
            await self.refuse_taken(places)
        except AlreadyRegistered:
            return  # another node was given the port since: that one would answer
        answer = await self._peers.ask(holder)
        if answer.verdict is not PeerVerdict.SILENT:
            raise AlreadyRegistered(
                f"{self._session_directory} is a copy of the directory of a node that answers: "
                f"{holder}. Stop that node, or give this one an id and a directory of its own."
            )

    def _deadline(self) -> float:
        wait_ms = self._zookeeper.session_timeout_ms + self._grace_ms
        return asyncio.get_running_loop().time() + wait_ms / 1000

    async def _wait_for(self, holder: RegisteredPeer, gone: asyncio.Event, deadline: float) -> None:
        """Until another session's registration is gone; raises AlreadyRegistered.

        At once when the holder answers, since it lives then.
        """
        since = datetime.fromtimestamp(holder.registration.timestamp / 1000, UTC)
        who = f"{holder}, registered at {since:%Y-%m-%d %H:%M:%S} UTC"
        is_former_life = holder.registration.endpoints == self._payload.endpoints
        if not is_former_life:  # else the ports are in our hands: who had them is gone
            answer = await self._peers.ask(holder)
            if answer.verdict is not PeerVerdict.SILENT:
                raise AlreadyRegistered(
                    f"broker.id={self._node_id} is another node's, which answers: {who}. "
                    "Give each node an id of its own (its session holds "
                    f"{self._path} in ZooKeeper)."
                )
            who = f"{who} ({answer.reason})"
        left_s = max(0.0, deadline - asyncio.get_running_loop().time())
        log.warning(
            "broker.id=%d is held by another session: %s; waiting up to %.0f s for it to end, "
            "as that of a node that was restarted does",
            self._node_id,
            who,
            left_s,
        )
        try:
            async with asyncio.timeout_at(deadline):
                await gone.wait()
        except TimeoutError:
            raise AlreadyRegistered(
                f"broker.id={self._node_id} is already registered in ZooKeeper at {self._path} "
                f"by {who}. Either another node runs with this id (give each its own), or this "
                "node was restarted before its old session timed out (start again in a moment)."
            ) from None

    async def _attempt(self) -> bool:
        """Register; False when the id is somebody's again."""
        while True:
            try:
                results = await self._zookeeper.multi(
                    Create(self._path, ephemeral=True),
                    Set(self._path, self._payload.to_json(), 0),
                )
                await self._registered(results[1])
                return True
            except MultiFailed as failed:
                if not isinstance(failed.error, NodeExists):
                    raise failed.error from None
            except ConnectionLost:
                log.warning("registered or not: the answer was lost node=%d", self._node_id)
            stat = await self._zookeeper.exists(self._path)
            if stat is None:
                continue
            if stat.ephemeral_owner != self._zookeeper.session_id:
                return False
            await self._registered(stat)
            return True

    async def _registered(self, stat: Stat) -> None:
        self.broker_epoch = stat.czxid
        self._session = stat.ephemeral_owner
        self._own_sessions.add(stat.ephemeral_owner)
        try:
            await write_session(self._files, self._session_directory, stat.ephemeral_owner)
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
        await self.refuse_taken(set(self._payload.endpoints.values()))

    async def refuse_taken(self, mine: AbstractSet[tuple[str, int]]) -> None:
        """Raise AlreadyRegistered when another node is known by one of these addresses."""
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
