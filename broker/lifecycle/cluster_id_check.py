"""Whether ZooKeeper still holds this node's cluster: while it is away, and before registering anew.

An ensemble that lost its data, or another one at the same address, knows no topic: a controller
elected there would tell every node that there is none. Source: docs/spec/cluster.md §1.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from barnabas.client.zookeeper.interface import SessionState, ZooKeeper, ZooKeeperError, read_if_any
from barnabas.protocol.zookeeper import znodes

log = logging.getLogger(__name__)

NOTICE_S: Final = 1.0
"""An outage shorter than this, a server that is restarted, is nothing to warn of."""
SAY_AGAIN_S: Final = 10.0
_LOOKED_FOR: Final = (znodes.CLUSTER_ID, znodes.BROKER_IDS, znodes.BROKER_TOPICS)


class ClusterIdCheck:
    """Compares ``/cluster/id`` with what it was when this node started."""

    def __init__(self, zookeeper: ZooKeeper, cluster_id: str) -> None:
        self._zookeeper = zookeeper
        self._cluster_id = cluster_id
        self._suspended = asyncio.Event()
        zookeeper.on_state.append(self._session_changed)

    async def confirm(self) -> None:
        """Return once ZooKeeper holds the cluster; says at once, and again, when it does not.

        Meanwhile the node goes on with what it knows, unregistered. Raises ZooKeeperError.
        """
        has_warned = False
        while True:
            changed = asyncio.Event()
            await self._zookeeper.exists(znodes.CLUSTER_ID, changed.set)
            problem = await self._problem()
            if problem is None:
                if has_warned:
                    log.info("zookeeper holds the cluster again cluster=%s", self._cluster_id)
                return
            has_warned = True
            self._warn(problem)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SAY_AGAIN_S):
                    await changed.wait()

    async def run(self) -> None:
        """While there is no connection, say so, and look through a fresh session; for ever.

        A session that has seen more than the servers have now is never resumed, and never over
        either: what they hold is seen in another one only.
        """
        while True:
            await self._suspended.wait()
            self._suspended.clear()
            await asyncio.sleep(NOTICE_S)
            while self._zookeeper.state is SessionState.SUSPENDED:
                await self._look_afresh()
                await asyncio.sleep(SAY_AGAIN_S)

    async def _look_afresh(self) -> None:
        try:
            data = await self._zookeeper.peek(znodes.CLUSTER_ID)
        except ZooKeeperError as error:
            if self._zookeeper.state is SessionState.SUSPENDED:
                log.warning("no connection to zookeeper: %s", error)
            return
        problem = self._judged(data) if data is not None else f"missing znode: {znodes.CLUSTER_ID}"
        if self._zookeeper.state is not SessionState.SUSPENDED:
            return
        if problem is not None:
            self._warn(problem)
        else:
            log.warning("zookeeper holds the cluster, but does not resume the session yet")

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED:
            self._suspended.set()

    def _warn(self, problem: str) -> None:
        log.warning(
            "ZooKeeper does not hold cluster %s any more: %s. This node does not register there: "
            "it serves records by what it knows, no commits, and no leader is elected. Bring back "
            "ZooKeeper's data; if zookeeper.connect leads to another ensemble now, correct it and "
            "restart. It goes on by itself once %s is right",
            self._cluster_id,
            problem,
            znodes.CLUSTER_ID,
        )

    def _judged(self, data: bytes) -> str | None:
        try:
            other = znodes.ClusterId.from_json(data).cluster_id
        except ValueError as error:
            return f"{znodes.CLUSTER_ID} cannot be read: {error}"
        return None if other == self._cluster_id else f"it holds cluster {other}"

    async def _problem(self) -> str | None:
        found = await read_if_any(self._zookeeper, znodes.CLUSTER_ID)
        if found is not None:
            return self._judged(found[0])
        missing = [path for path in _LOOKED_FOR if not await self._zookeeper.exists(path)]
        return f"missing znodes: {', '.join(missing) or znodes.CLUSTER_ID}"
