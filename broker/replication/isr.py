"""The in-sync replicas of led partitions: shrunk, expanded, written to ZooKeeper, announced.

A leader writes the ISR itself, on condition of the version of the state znode that it knows; every
decision of a controller changes that version first, so nothing else guards the write: a deposed
leader's change fails (BadVersion) and cannot undo an election.

While a change is under way, the leader counts the old and the new ISR together (the *maximal* ISR
of KIP-497): whoever joins may be elected as soon as the znode names it, and whoever leaves as long
as the znode does. Counting less would commit records that the next leader may not have.

Source: docs/spec/cluster.md §3.6; §6 pitfalls 3, 4, 15 and 16. Partition.maybeExpandIsr and
maybeShrinkIsr (3.9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.client.zookeeper.interface import (
    BadVersion,
    NoAuth,
    NoNode,
    ZooKeeper,
    ZooKeeperError,
)
from barnabas.protocol.zookeeper import znodes

from .partition_context import PendingIsrChange

if TYPE_CHECKING:
    from .partition import Partition

log = logging.getLogger(__name__)

NOTIFICATION_CHECK_S: Final = 2.5
NOTIFICATION_QUIET_S: Final = 5.0
"""A notification is written when nothing more has changed for so long,"""
NOTIFICATION_LATEST_S: Final = 60.0
"""or when the last one is so old."""
NOTIFICATION_PARTITIONS_MAX: Final = 3000
"""In one notification, so that it fits into a znode."""
WRITES_MAX: Final = 100
"""At once: the loss of a node may change thousands of sets."""
BACKOFF_S: Final = 0.1
REFUSED_S: Final = 10.0
"""Before the next try to write what ZooKeeper does not let this node write."""


# --- the rules ------------------------------------------------------------------------------------


def maybe_expand_isr(partition: Partition, nodes: Collection[int] | None = None) -> None:
    """Take one of ``nodes`` into the ISR; None: of all that fetched in this epoch.

    It must have everything below the high watermark *and* everything that former leaders wrote:
    after a failover the high watermark is behind what they acknowledged, and a replica that has
    only as much could be elected and lose the rest (docs/spec/cluster.md §6, pitfall 14). Its node
    must be registered: a dead or stopping replica must not come back by a fetch that was under way
    (KAFKA-14140).

    One change at a time. Asked again when a change is through: a replica that has nothing to fetch
    is not looked at for long.
    """
    if not _may_change(partition):
        return
    context = partition.context
    least = max(partition.high_watermark, partition.epoch_start)
    since = context.now() - context.lag_max_s
    ready = partition.followers.with_all(least, since)
    candidates = ready.intersection(nodes or partition.fetched_this_epoch)
    for node in sorted(candidates.intersection(context.live_nodes()).difference(partition.isr))[:1]:
        _propose(partition, (*partition.isr, node))


def maybe_shrink_isr(partition: Partition) -> None:
    """Take out replicas that were not caught up for ``replica.lag.time.max.ms``.

    A replica that has all that the leader has stays, however long ago it fetched: an idle partition
    never shrinks. Nothing is known of the leader's own progress, so it is never among them.
    """
    if not _may_change(partition) or len(partition.isr) == 1:
        return
    since = partition.context.now() - partition.context.lag_max_s
    if lagging := partition.followers.lagging(partition.isr, partition.log.end_offset, since):
        _propose(partition, [node for node in partition.isr if node not in lagging])


def _may_change(partition: Partition) -> bool:
    """Whether this node may propose another ISR now.

    A leader whose log directory failed serves no fetch, so that all its followers seem to lag. It
    took out those that have every record, and the partition had no leader when it was replaced
    (Kafka's HostedPartition.Offline is not looked at either).
    """
    is_busy = partition.pending_isr_change is not None
    return partition.is_leader and not is_busy and not partition.log.is_offline


def _propose(partition: Partition, isr: Sequence[int]) -> None:
    assert isr, f"{partition} would have nobody in sync"
    change = partition.pending_isr_change = PendingIsrChange(
        partition, isr, partition.leader_epoch, partition.controller_epoch, partition.zk_version
    )
    partition.context.propose(change)


def complete_isr_change(change: PendingIsrChange, isr: Sequence[int], zk_version: int) -> None:
    """The state znode has ``isr`` in this epoch; nothing changes when ``change`` is outdated.

    That is what was proposed, or what an earlier proposal left there. The high watermark is looked
    at again: after a shrink it may pass what the removed replica lacked (KAFKA-13091).
    """
    partition = change.partition
    if partition.pending_isr_change is not change:
        return
    log.info("changed in-sync set %s from=%s to=%s", partition, list(partition.isr), list(isr))
    partition.pending_isr_change = None
    partition.isr = tuple(isr)
    partition.zk_version = zk_version
    partition.advance_high_watermark()
    maybe_expand_isr(partition)


def drop_isr_change(change: PendingIsrChange) -> None:
    """The state znode is gone, or the log: nobody tries any longer to write the change."""
    if change.partition.pending_isr_change is change:
        change.partition.pending_isr_change = None


# --- writing and announcing -----------------------------------------------------------------------


class HostedPartitions(Protocol):
    """The replicas of this node."""

    def __iter__(self) -> Iterator[Partition]:
        """All of them, led here or not."""

    def depose(self, partition: Partition, leader_epoch: int) -> None:
        """Somebody else decides about this partition by now: lead it no longer."""


class IsrManager:
    """Writes ISR changes to ZooKeeper and tells the controller; :meth:`run` until cancelled.

    Implements PartitionContext for the partitions of one node.
    """

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
        self._write_slots = asyncio.Semaphore(WRITES_MAX)
        self._unannounced: set[znodes.TopicPartition] = set()
        self._changed_at = 0.0
        self._announced_at = 0.0
        self.shrinks = 0
        """How often a set that is led here became smaller, and how often larger."""
        self.expands = 0

    def propose(self, change: PendingIsrChange) -> None:
        """Write ``change`` soon, and tell its partition what the znode holds then."""
        self._proposed.put_nowait(change)

    async def run(self, hosted: HostedPartitions) -> None:
        """Write what is proposed, and shrink and expand by time, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._shrink_and_expand(hosted), name="ISR shrink and expand")
            tasks.create_task(self._announce_changes(), name="ISR change notifications")
            while True:
                change = await self._proposed.get()
                await self._write_slots.acquire()
                tasks.create_task(self._settle(change, hosted))

    async def _shrink_and_expand(self, hosted: Iterable[Partition]) -> None:
        while True:
            # So a replica leaves after 1.0 to 1.5 times the limit (docs/spec/cluster.md §3.6).
            await asyncio.sleep(self.lag_max_s / 2)
            for partition in hosted:
                maybe_shrink_isr(partition)
                maybe_expand_isr(partition)

    async def _settle(self, change: PendingIsrChange, hosted: HostedPartitions) -> None:
        """Try until the outcome is known, or until a new order of the controller ends the change.

        Without ZooKeeper it stays under way: who leaves still counts, and so does who joins.
        """
        try:
            while change.partition.pending_isr_change is change:
                try:
                    await self._write(change, hosted)
                except NoAuth as error:
                    log.error("may not write an in-sync set %s: %s", change.partition, error)
                    await asyncio.sleep(REFUSED_S)
                except ZooKeeperError as error:
                    log.warning("could not write an in-sync set %s: %r", change.partition, error)
                    await asyncio.sleep(BACKOFF_S)
        finally:
            self._write_slots.release()

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
            drop_isr_change(change)
        except ValueError as error:
            log.error("could not read the state at path=%s: %s", path, error)
            drop_isr_change(change)

    async def _read_back(
        self, change: PendingIsrChange, path: str, hosted: HostedPartitions
    ) -> None:
        """Another version: an earlier write of ours whose answer was lost, or another leader.

        Which of both is read from the znode. Without that a leader whose answer was lost would try
        with an outdated version for ever, its ISR frozen (KAFKA-2729).
        """
        data, stat = await self._zookeeper.get(path)
        found = znodes.PartitionState.from_json(data)
        if (found.leader, found.leader_epoch) == (self._node_id, change.leader_epoch):
            self._written(change, found, stat.version)
        elif change.partition.pending_isr_change is change:
            log.warning("was deposed %s by epoch=%d", change.partition, found.leader_epoch)
            hosted.depose(change.partition, change.leader_epoch)

    def _written(
        self, change: PendingIsrChange, state: znodes.PartitionState, version: int
    ) -> None:
        grown = len(state.isr) - len(change.partition.isr)
        self.shrinks += grown < 0
        self.expands += grown > 0
        complete_isr_change(change, state.isr, version)
        self._unannounced.add(znodes.TopicPartition(change.partition.topic, change.partition.index))
        self._changed_at = self.now()

    async def _announce_changes(self) -> None:
        """Have the controller tell everybody of changed ISRs, many at a time.

        Until then Metadata names the former ISR, which harms nobody; a notification for every
        change would have the controller read thousands of states when a node is lost.
        """
        while True:
            await asyncio.sleep(NOTIFICATION_CHECK_S)
            now = self.now()
            is_quiet = now - self._changed_at > NOTIFICATION_QUIET_S
            if self._unannounced and (is_quiet or now - self._announced_at > NOTIFICATION_LATEST_S):
                await self._announce(sorted(self._unannounced)[:NOTIFICATION_PARTITIONS_MAX])

    async def _announce(self, partitions: list[znodes.TopicPartition]) -> None:
        payload = znodes.IsrChange(partitions=tuple(partitions)).to_json()
        # Before the answer: an ISR that changes again meanwhile has to be announced again.
        self._unannounced.difference_update(partitions)
        try:
            await self._zookeeper.create(znodes.ISR_CHANGE_PREFIX, payload, sequence=True)
        except ZooKeeperError as error:
            log.warning("could not tell of changed in-sync sets: %r", error)
            self._unannounced.update(partitions)
            return
        self._announced_at = self.now()
