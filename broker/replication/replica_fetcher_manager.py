"""All partitions this node follows, each fetched from its leader.

Source: docs/spec/cluster.md §3.3 and §3.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from barnabas.broker.settings.node_config import ReplicationSettings

from .partition import Partition
from .replica_fetcher import Connect, Locate, ReplicaFetcher


class ReplicaFetcherManager:
    """One fetcher a leader, made when the first partition asks for it; :meth:`run` runs them."""

    def __init__(
        self,
        node_id: int,
        settings: ReplicationSettings,
        *,
        dial: Connect,
        locate: Locate,
        truncated: Callable[[], Awaitable[None]],
    ) -> None:
        """``truncated`` writes recovery points down, before more is appended."""
        self._node_id = node_id
        self._settings = settings
        self._dial = dial
        self._locate = locate
        self._truncated = truncated
        self._fetchers: dict[int, ReplicaFetcher] = {}
        self._unstarted: asyncio.Queue[ReplicaFetcher] = asyncio.Queue()
        self._leaders: dict[Partition, int] = {}
        self._takes_more = True

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's leader, in its present epoch; from nobody without one."""
        self.stop(partition)
        leader = partition.leader_id
        if leader < 0 or not self._takes_more:
            return
        self._leaders[partition] = leader
        self._fetcher(leader).add(partition)

    def stop(self, partition: Partition) -> None:
        """Fetch no more; harmless for a partition that was not followed."""
        leader = self._leaders.pop(partition, None)
        if leader is not None:
            self._fetchers[leader].remove(partition)

    def take_no_more(self) -> None:
        """This node stops: what it led until now it does not begin to follow.

        It would be in sync again when it goes, and others would wait for it until that is noticed.
        """
        self._takes_more = False

    def hurry(self) -> None:
        """Fetch at once what was added."""
        for fetcher in self._fetchers.values():
            fetcher.hurry()

    async def run(self) -> None:
        """Run every fetcher until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                fetcher = await self._unstarted.get()
                tasks.create_task(fetcher.run(), name="fetcher")

    def _fetcher(self, leader: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(
                leader,
                self._node_id,
                self._settings,
                dial=self._dial,
                locate=self._locate,
                truncated=self._truncated,
            )
            self._unstarted.put_nowait(fetcher)
        return fetcher
