"""Controller election: who is controller, and the fence that every write of a controller passes.

One multi creates ``/controller`` and raises ``/controller_epoch``. With two writes, as Kafka once
had them, two nodes could hold one epoch, and nobody could tell their requests apart
(docs/spec/cluster.md §6, pitfall 2).

The fence is the version of ``/controller_epoch`` at the election: a check in the same multi as
every write. A controller that was paused while its session expired wakes up and finds that nothing
it writes takes effect (KAFKA-6082); the nodes refuse its requests by the epoch in them.

Source: docs/spec/cluster.md §2.2.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from barnabas.client.zookeeper.interface import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    MultiFailed,
    NoAuth,
    NodeExists,
    NoNode,
    Op,
    Set,
    Stat,
    Watch,
    ZooKeeper,
    ZooKeeperError,
)
from barnabas.protocol.zookeeper import znodes

from .unknown_outcome import results_if_applied
from .voters_znode import VotersZnode

log = logging.getLogger(__name__)

NOBODY_KNOWN: Final = -1
"""The id of a controller whose znode cannot be read: there is one, and no more is known."""
ATTEMPTS_MAX: Final = 20
"""Elections lost in a row to somebody who is gone again before a controller gives up for now."""
OUTAGE_SESSIONS_MAX: Final = 2
"""Session timeouts without a connection until a write is given up, as reads are."""


class ControllerMoved(Exception):  # noqa: N818 - what happened
    """Another controller was elected: this one stops at once and retries nothing."""


class ControllerElection:
    """One node's part in the controller election.

    ``former_session`` is the ZooKeeper session of this node's former life, known to be dead: a
    ``/controller`` it left behind is taken over at once instead of waiting for its timeout.
    ``seen`` is told of every other controller found, ``is_silent`` says whether the one seen last
    has given no sign of life for so long that it is to be replaced (docs/spec/reliability.md §3.1
    (d)). ``voters`` is claimed by the same multi; None where this node sends no beacons.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        node_id: int,
        *,
        now_ms: Callable[[], int],
        former_session: int | None = None,
        seen: Callable[[int | None], None] = lambda controller: None,
        is_silent: Callable[[], bool] = lambda: False,
        voters: VotersZnode | None = None,
    ) -> None:
        self.controller_id: int | None = None
        """The controller as last read, None when there was none."""
        self.epoch = 0
        """Our controller epoch; 0 while somebody else is controller."""
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._now_ms = now_ms
        self._former_session = former_session
        self._seen = seen
        self._is_silent = is_silent
        self.voters = voters
        self._last_czxid = -1
        self._fence = -1

    @property
    def is_won(self) -> bool:
        """We were elected and have not resigned since."""
        return self.epoch > 0

    async def look(self, changed: Watch) -> bool:
        """Read who is controller, watching for the next change; True when nobody is."""
        stat = await self._zookeeper.exists(znodes.CONTROLLER, changed)
        self.controller_id = None if stat is None else await self._read_id()
        czxid = -1 if stat is None else stat.czxid
        if czxid != self._last_czxid:
            self._last_czxid = czxid
            self._seen(self.controller_id)
        return self.controller_id is None or (stat is not None and self._is_left_behind(stat))

    async def campaign(self, changed: Watch) -> bool:
        """Become controller unless somebody is; True when won. ``changed`` watches the winner.

        One multi creates ``/controller`` and raises the epoch, so no two controllers ever share
        an epoch. Whoever loses, or does not learn the outcome, looks again: after a lost answer
        the znode names this session, and is deleted and created anew in the next multi, so the
        epoch that is won is always one whose number is known. Raises ZooKeeperError when that does
        not come to an end.
        """
        for _ in range(ATTEMPTS_MAX):
            if not await self.look(changed) and not self._is_silent():
                return False
            # The epoch is read first: a rival elected after this makes the multi fail.
            epoch, version = await self._stored_epoch()
            stat = await self._zookeeper.exists(znodes.CONTROLLER)
            if stat is not None and not (self._is_left_behind(stat) or self._is_given_up(stat)):
                continue
            claim = [] if self.voters is None else [await self.voters.claim(epoch)]
            try:
                results = await self._zookeeper.multi(
                    *claim,
                    *([Delete(znodes.CONTROLLER, stat.version)] if stat else []),
                    Create(znodes.CONTROLLER, self._record(), ephemeral=True),
                    Set(znodes.CONTROLLER_EPOCH, str(epoch + 1).encode(), version),
                )
            except (MultiFailed, ConnectionLost) as failure:
                if isinstance(failure, MultiFailed) and isinstance(failure.error, NoAuth):
                    raise failure.error from None  # trying again would change nothing
                continue
            self.epoch = epoch + 1
            self._fence = results[-1].version
            if self.voters is not None:
                self.voters.claimed(results[0])
            self.controller_id = self._node_id
            log.info("elected controller node=%d epoch=%d", self._node_id, self.epoch)
            self._seen(self._node_id)
            return True
        raise ZooKeeperError(f"no end to the election after {ATTEMPTS_MAX} attempts")

    async def fenced(self, *operations: Op) -> list[Any]:
        """Apply the operations, all or none, provided that no other controller was elected.

        A lost connection is waited for and the multi sent again: a term must not end because
        ZooKeeper was restarted (docs/controller.md, "A lost connection"). Raises ControllerMoved,
        what stopped the first operation that could not be applied, or ConnectionLost when there
        was none for two session timeouts.
        """
        epoch, is_unsure = self.epoch, False
        loop = asyncio.get_running_loop()
        deadline = loop.time() + OUTAGE_SESSIONS_MAX * self._zookeeper.session_timeout_ms / 1000
        while True:
            try:
                return await self.fenced_once(*operations)
            except ConnectionLost as lost:
                log.info("sending a write again, applied or not: %r", lost)
                is_unsure = True
                if loop.time() >= deadline:
                    raise
                await self._zookeeper.exists(znodes.CONTROLLER_EPOCH)  # waits for a connection
            except (BadVersion, NodeExists, NoNode):
                if not is_unsure:
                    raise
                results = await results_if_applied(self._zookeeper, operations)
                if results is None:
                    raise
                return results
            if self.epoch != epoch:  # while this waited
                raise ControllerMoved(f"epoch {epoch} is over")

    async def fenced_once(self, *operations: Op) -> list[Any]:
        """The same in one try: raises ConnectionLost when it is not known what came of it."""
        if not self.is_won:
            raise ControllerMoved("resigned")
        try:
            results = await self._zookeeper.multi(
                Check(znodes.CONTROLLER_EPOCH, self._fence), *operations
            )
        except MultiFailed as failed:
            # The fence alone ends the term; any other operation that fails is an ordinary conflict
            # with a leader or a tool, to be read again and retried.
            if failed.index == 0:
                raise ControllerMoved(f"epoch {self.epoch} is over") from None
            raise failed.error from None
        return results[1:]

    async def resign(self) -> None:
        """Give the role up; the znode goes too, unless it is another's by now."""
        if not self.is_won:
            return
        epoch, self.epoch = self.epoch, 0
        log.info("resigned as controller node=%d epoch=%d", self._node_id, epoch)
        try:
            stat = await self._zookeeper.exists(znodes.CONTROLLER)
            if stat is not None and stat.ephemeral_owner == self._zookeeper.session_id:
                await self._zookeeper.multi(
                    Check(znodes.CONTROLLER_EPOCH, self._fence),
                    Delete(znodes.CONTROLLER, stat.version),
                )
        except (MultiFailed, NoNode) as failure:
            if isinstance(failure, MultiFailed) and isinstance(failure.error, NoAuth):
                raise failure.error from None  # it is ours, and stays
            log.info("left the controller znode to its new owner node=%d", self._node_id)

    def step_down(self) -> None:
        """Forget the role without a word to ZooKeeper: the session that held it is over.

        The znode went with the session; one that is there by now is another's (KAFKA-4229).
        """
        self.epoch = 0
        self.controller_id = None

    def _is_left_behind(self, stat: Stat) -> bool:
        """The znode is of a life of ours that is over, or of a campaign whose end we missed.

        Only of sessions that are known to be ours: another's may belong to a living controller.
        """
        mine = (self._zookeeper.session_id, self._former_session)
        return not self.is_won and stat.ephemeral_owner in mine

    def _is_given_up(self, stat: Stat) -> bool:
        """The znode is of the controller seen last, which is silent; its session may live on.

        By czxid: a controller elected meanwhile has had no time to be heard.
        """
        is_same = stat.czxid == self._last_czxid
        if is_same and self._is_silent():
            log.warning("took over from a silent controller node=%s", self.controller_id)
            return True
        return False

    async def _read_id(self) -> int | None:
        try:
            data, _stat = await self._zookeeper.get(znodes.CONTROLLER)
        except NoNode:
            return None
        try:
            return znodes.ControllerRecord.from_json(data).broker_id
        except ValueError:
            return NOBODY_KNOWN

    async def _stored_epoch(self) -> tuple[int, int]:
        """The last controller's epoch, and the version the znode must have to be raised."""
        try:
            await self._zookeeper.create(znodes.CONTROLLER_EPOCH, b"0")
        except NodeExists:
            pass
        data, stat = await self._zookeeper.get(znodes.CONTROLLER_EPOCH)
        try:
            epoch = int(data)
        except ValueError:
            epoch = -1
        if not 0 <= epoch < znodes.LAST_EPOCH:
            raise ZooKeeperError(
                f"no controller can be elected: {znodes.CONTROLLER_EPOCH} holds {data[:40]!r}, no "
                "epoch that another can follow; set it to the highest controller_epoch in the "
                "states of the partitions"
            )
        return epoch, stat.version

    def _record(self) -> bytes:
        return znodes.ControllerRecord(broker_id=self._node_id, timestamp=self._now_ms()).to_json()
