"""Notifications that nodes leave in ZooKeeper: changed in-sync sets, failed log directories.

A node tells the controller by a sequential znode in ``/isr_change_notification`` or
``/log_dir_event_notification``; the controller acts, then deletes it. Acting twice is harmless, so
one that is deleted too late does no damage, and one that is lost is made up for by reconciliation.

Source: docs/spec/cluster.md §1.4, §2.3 and §2.6.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas.client.zookeeper.interface import Delete, NoNode, read_if_any
from barnabas.protocol.zookeeper import znodes

from .context import Partition
from .state_transitions import ReplicaStatus
from .term import ControllerTerm

log = logging.getLogger(__name__)


class ZooKeeperNotifications:
    """Reads notifications, acts on them, and deletes them."""

    def __init__(self, term: ControllerTerm) -> None:
        self._term = term
        self._context = term.context

    async def discard(self) -> None:
        """Begin to watch; what is there already says nothing that a takeover does not read."""
        watched = (
            (znodes.ISR_CHANGES, self._term.watch("isr changes", self._isr_changed)),
            (znodes.LOG_DIR_EVENTS, self._term.watch("log directories", self._log_dirs_failed)),
        )
        for folder, watch in watched:
            await self._remove(folder, await self._term.zookeeper.children(folder, watch))

    async def recheck(self) -> None:
        """Act on whatever lies there: for a watch that was lost."""
        zookeeper = self._term.zookeeper
        if await zookeeper.children(znodes.ISR_CHANGES):
            await self._isr_changed()
        if await zookeeper.children(znodes.LOG_DIR_EVENTS):
            await self._log_dirs_failed()

    async def _isr_changed(self) -> None:
        """Leaders changed in-sync sets themselves: tell everybody, the states are read again."""
        watch = self._term.watch("isr changes", self._isr_changed)
        names = await self._term.zookeeper.children(znodes.ISR_CHANGES, watch)
        changed: set[Partition] = set()
        for name in sorted(names):
            found = await read_if_any(self._term.zookeeper, f"{znodes.ISR_CHANGES}/{name}")
            try:
                notification = znodes.IsrChange.from_json(found[0] if found else b"")
            except ValueError:
                continue
            changed |= {(topic, index) for topic, index in notification.partitions}
        known = changed & self._context.leaders.keys()
        self._context.leaders.update(await self._term.states.read(known))
        batch = self._term.batch()
        if known:
            batch.publish(known)
        batch.send()
        await self._remove(znodes.ISR_CHANGES, names)

    async def _log_dirs_failed(self) -> None:
        """Ask the nodes which replicas they serve, failed ones again: those not answered 56."""
        watch = self._term.watch("log directories", self._log_dirs_failed)
        names = await self._term.zookeeper.children(znodes.LOG_DIR_EVENTS, watch)
        nodes = set()
        for name in names:
            found = await read_if_any(self._term.zookeeper, f"{znodes.LOG_DIR_EVENTS}/{name}")
            try:
                nodes.add(znodes.LogDirEvent.from_json(found[0] if found else b"").broker)
            except ValueError:
                continue
        await self._ask_for_replicas(nodes & self._context.nodes.keys())
        await self._remove(znodes.LOG_DIR_EVENTS, names)

    async def _ask_for_replicas(self, nodes: set[int]) -> None:
        replicas = self._context.replicas_on(nodes)
        hosted = self._term.without_deleting_topics(replicas)
        # Nobody leads what is being deleted: whether its disk works shows when it is deleted.
        self._context.failed_replicas -= set(replicas) - set(hosted)
        failed = self._context.failed_replicas.intersection(hosted)
        self._context.failed_replicas -= failed
        batch = self._term.batch()
        self._term.replicas.become(sorted(failed), ReplicaStatus.ONLINE, batch)
        for topic, index, node in set(hosted) - failed:
            batch.lead([node], (topic, index))
        await self._term.partitions.elect_missing_leaders(batch)
        batch.publish({replica[:2] for replica in failed} & self._context.leaders.keys())
        batch.send()

    async def _remove(self, folder: str, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._term.election.fenced(Delete(f"{folder}/{name}"))
            except NoNode:
                continue
