"""In-sync sets on their way to ZooKeeper: who left, who joined, and who is told.

A leader writes the set itself, on condition of the version it knows; every decision of a
controller changes that version first, so nothing else guards the write.
Source: docs/spec/cluster.md §3.6; §6 pitfalls 3, 4, 15 and 16.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Protocol

from barnabas.client.zookeeper.interface import BadVersion, NoNode, ZooKeeper, ZooKeeperError
from barnabas.protocol.zookeeper import znodes

from .partition import Partition
from .partition_context import PendingIsrChange

log = logging.getLogger(__name__)

NOTIFICATION_CHECK_S: Final = 2.5
NOTIFICATION_QUIET_S: Final = 5.0
"""A notice is written when nothing more has changed for so long,"""
NOTIFICATION_LATEST_S: Final = 60.0
"""or when the last one is so old."""
NOTIFICATION_PARTITIONS_MAX: Final = 3000
"""In one notice, so that it fits into a znode."""
WRITES_MAX: Final = 100
"""At once: the loss of a node may change thousands of sets."""
BACKOFF_S: Final = 0.1


class HostedPartitions(Protocol):
    """The replicas of this node."""

    def __iter__(self) -> Iterator[Partition]:
        """All of them, led here or not."""

    def depose(self, partition: Partition, leader_epoch: int) -> None:
        """Somebody else decides about this partition by now: lead it no longer."""


class IsrManager:
    """Implements PartitionContext for the partitions of one node; :meth:`run` does the work."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        node_id: int,
        loop: asyncio.AbstractEventLoop,
        *,
        lag_max_ms: int,
        live_nodes: Callable[[], Collection[int]],
    ) -> None:
        self.lag_max_s = lag_max_ms / 1000
        self.now = loop.time
        self.live_nodes = live_nodes
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._proposed: asyncio.Queue[PendingIsrChange] = asyncio.Queue()
        self._places = asyncio.Semaphore(WRITES_MAX)
        self._untold: set[znodes.TopicPartition] = set()
        self._changed_at = 0.0
        self._told_at = 0.0
        self.shrinks = 0
        """How often a set that is led here became smaller, and how often larger."""
        self.expands = 0

    def propose(self, change: PendingIsrChange) -> None:
        """Write ``change`` soon, and tell its partition what stands in the znode then."""
        self._proposed.put_nowait(change)

    async def run(self, hosted: HostedPartitions) -> None:
        """Write what is proposed and look for laggards, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._drop_laggards(hosted), name="laggards")
            tasks.create_task(self._tell_controller(), name="notices of in-sync sets")
            while True:
                change = await self._proposed.get()
                await self._places.acquire()
                tasks.create_task(self._settle(change, hosted))

    async def _drop_laggards(self, hosted: Iterable[Partition]) -> None:
        while True:
            await asyncio.sleep(self.lag_max_s / 2)
            for partition in hosted:
                partition.drop_laggards()
                partition.let_join()

    async def _settle(self, change: PendingIsrChange, hosted: HostedPartitions) -> None:
        """Try until the outcome is known, or until a new order of the controller ends the change.

        Without ZooKeeper it stays under way: who leaves still counts, and so does who joins.
        """
        try:
            while change.partition.pending is change:
                try:
                    await self._write(change, hosted)
                except ZooKeeperError as error:
                    log.warning("could not write an in-sync set %s: %r", change.partition, error)
                    await asyncio.sleep(BACKOFF_S)
        finally:
            self._places.release()

    async def _write(self, change: PendingIsrChange, hosted: HostedPartitions) -> None:
        partition = change.partition
        path = znodes.partition_state_path(partition.topic, partition.index)
        state = znodes.PartitionState(
            leader=self._node_id,
            leader_epoch=change.leader_epoch,
            controller_epoch=change.controller_epoch,
            isr=tuple(change.isr),
        )
        try:
            try:
                stat = await self._zookeeper.set(path, state.to_json(), change.zk_version)
            except BadVersion:
                await self._read_back(change, path, hosted)
            else:
                self._written(change, state, stat.version)
        except NoNode:
            partition.isr_given_up(change)
        except ValueError as error:
            log.error("could not read the state at path=%s: %s", path, error)
            partition.isr_given_up(change)

    async def _read_back(
        self, change: PendingIsrChange, path: str, hosted: HostedPartitions
    ) -> None:
        """Another version: an earlier write of ours whose answer was lost, or another leader."""
        data, stat = await self._zookeeper.get(path)
        found = znodes.PartitionState.from_json(data)
        if (found.leader, found.leader_epoch) == (self._node_id, change.leader_epoch):
            self._written(change, found, stat.version)
        elif change.partition.pending is change:
            log.warning("was deposed %s by epoch=%d", change.partition, found.leader_epoch)
            hosted.depose(change.partition, change.leader_epoch)

    def _written(
        self, change: PendingIsrChange, state: znodes.PartitionState, version: int
    ) -> None:
        grown = len(state.isr) - len(change.partition.isr)
        self.shrinks += grown < 0
        self.expands += grown > 0
        change.partition.isr_written(change, state.isr, version)
        self._untold.add(znodes.TopicPartition(change.partition.topic, change.partition.index))
        self._changed_at = self.now()

    async def _tell_controller(self) -> None:
        """Leave notes about changed sets: the controller tells everybody then."""
        while True:
            await asyncio.sleep(NOTIFICATION_CHECK_S)
            now = self.now()
            is_quiet = now - self._changed_at > NOTIFICATION_QUIET_S
            if self._untold and (is_quiet or now - self._told_at > NOTIFICATION_LATEST_S):
                await self._tell(sorted(self._untold)[:NOTIFICATION_PARTITIONS_MAX])

    async def _tell(self, partitions: list[znodes.TopicPartition]) -> None:
        payload = znodes.IsrChange(partitions=tuple(partitions)).to_json()
        try:
            await self._zookeeper.create(znodes.ISR_CHANGE_PREFIX, payload, sequence=True)
        except ZooKeeperError as error:
            log.warning("could not tell of changed in-sync sets: %r", error)
            return
        self._untold.difference_update(partitions)
        self._told_at = self.now()
