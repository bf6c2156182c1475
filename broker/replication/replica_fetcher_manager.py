"""The replica fetchers of a node: one for each leader that it follows.

Source: docs/spec/cluster.md §3.3 and §3.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .partition import Partition
from .replica_fetcher import ReplicaFetcher


class ReplicaFetcherManager:
    """One fetcher a leader, made when the first partition asks for it; :meth:`run` runs them."""

    def __init__(self, make_fetcher: Callable[[int], ReplicaFetcher]) -> None:
        """``make_fetcher`` makes the fetcher for a leader, by its id."""
        self._make_fetcher = make_fetcher
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

    def wake(self) -> None:
        """Fetch at once what was added."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    async def run(self) -> None:
        """Run every fetcher until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                fetcher = await self._unstarted.get()
                tasks.create_task(fetcher.run(), name="fetcher")

    def _fetcher(self, leader: int) -> ReplicaFetcher:
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._make_fetcher(leader)
            self._unstarted.put_nowait(fetcher)
        return fetcher
