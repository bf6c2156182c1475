"""What others leave in ZooKeeper for the controller: changed in-sync sets, failed disks, wishes.

Source: docs/spec/cluster.md §1.4, §1.5, §2.3 and §2.6.
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
    """Reads the notes, acts on them, and takes them away."""

    def __init__(self, term: ControllerTerm) -> None:
        self._term = term
        self._context = term.context

    async def discard(self) -> None:
        """Begin to watch; what is there already says nothing that a takeover does not read."""
        watched = (
            (znodes.ISR_CHANGES, self._term.watch("isr changes", self._in_sync_sets_changed)),
            (znodes.LOG_DIR_EVENTS, self._term.watch("log directories", self._disks_changed)),
        )
        for folder, watch in watched:
            await self._remove(folder, await self._term.zookeeper.children(folder, watch))

    async def preferred_election_asked(self) -> None:
        """Give leadership to the first replicas a tool named; the wish is then gone."""
        watch = self._term.watch("preferred election", self.preferred_election_asked)
        if await self._term.zookeeper.exists(znodes.PREFERRED_ELECTION, watch) is None:
            return
        found = await read_if_any(self._term.zookeeper, znodes.PREFERRED_ELECTION)
        try:
            wish = znodes.PreferredElection.from_json(found[0] if found else b"")
            await self.elect_preferred([(topic, index) for topic, index in wish.partitions])
        except ValueError as error:
            log.error("ignored a wish for preferred leaders that cannot be read: %s", error)
        try:
            await self._term.election.fenced(Delete(znodes.PREFERRED_ELECTION))
        except NoNode:
            pass
        await self.preferred_election_asked()

    async def elect_preferred(self, partitions: Iterable[Partition]) -> None:
        """Give leadership to the first replica wherever it is live and in sync."""
        batch = self._term.batch()
        known = [
            partition
            for partition in partitions
            if partition in self._context.leaders and partition[0] not in self._context.deleting
        ]
        elected = await self._term.partitions.elect(known, self._term.partitions.preferred, batch)
        batch.send()
        if elected:
            log.info("gave leadership to preferred replicas partitions=%d", len(elected))

    async def look_again(self) -> None:
        """Act on whatever lies there: for a watch that was lost."""
        zookeeper = self._term.zookeeper
        if await zookeeper.children(znodes.ISR_CHANGES):
            await self._in_sync_sets_changed()
        if await zookeeper.children(znodes.LOG_DIR_EVENTS):
            await self._disks_changed()
        if await zookeeper.exists(znodes.PREFERRED_ELECTION):
            await self.preferred_election_asked()

    async def balance(self) -> None:
        """Give leadership back to nodes that lead too few of those they are first for."""
        share = self._term.dependencies.settings.leader_imbalance_percentage / 100
        by_first: dict[int, list[Partition]] = {}
        for partition in self._context.leaders:
            is_settled = partition not in self._context.moves
            if is_settled and partition[0] not in self._context.deleting:
                by_first.setdefault(self._context.assigned(partition)[0], []).append(partition)
        for node, partitions in sorted(by_first.items()):
            astray = [p for p in partitions if self._context.leaders[p].leader != node]
            if node in self._context.live and len(astray) > share * len(partitions):
                await self.elect_preferred(astray)

    async def _in_sync_sets_changed(self) -> None:
        """Leaders changed in-sync sets themselves: tell everybody, the states are read again."""
        watch = self._term.watch("isr changes", self._in_sync_sets_changed)
        names = await self._term.zookeeper.children(znodes.ISR_CHANGES, watch)
        changed: set[Partition] = set()
        for name in sorted(names):
            found = await read_if_any(self._term.zookeeper, f"{znodes.ISR_CHANGES}/{name}")
            try:
                note = znodes.IsrChange.from_json(found[0] if found else b"")
            except ValueError:
                continue
            changed |= {(topic, index) for topic, index in note.partitions}
        known = changed & self._context.leaders.keys()
        self._context.leaders.update(await self._term.states.read(known))
        batch = self._term.batch()
        if known:
            batch.publish(known)
        batch.send()
        await self._remove(znodes.ISR_CHANGES, names)

    async def _disks_changed(self) -> None:
        """Ask the nodes which replicas they serve, failed ones again: those not answered 56."""
        watch = self._term.watch("log directories", self._disks_changed)
        names = await self._term.zookeeper.children(znodes.LOG_DIR_EVENTS, watch)
        nodes = set()
        for name in names:
            found = await read_if_any(self._term.zookeeper, f"{znodes.LOG_DIR_EVENTS}/{name}")
            try:
                nodes.add(znodes.LogDirEvent.from_json(found[0] if found else b"").broker)
            except ValueError:
                continue
        await self._ask_again(nodes & self._context.nodes.keys())
        await self._remove(znodes.LOG_DIR_EVENTS, names)

    async def _ask_again(self, nodes: set[int]) -> None:
        replicas = self._context.replicas_on(nodes)
        hosted = self._term.living_replicas(replicas)
        # Nobody leads what is being deleted: whether its disk works shows when it is deleted.
        self._context.failed_replicas -= set(replicas) - set(hosted)
        failed = self._context.failed_replicas.intersection(hosted)
        self._context.failed_replicas -= failed
        batch = self._term.batch()
        self._term.replicas.become(sorted(failed), ReplicaStatus.ONLINE, batch)
        for topic, index, node in set(hosted) - failed:
            batch.lead([node], (topic, index))
        await self._term.partitions.elect_wherever_missing(batch)
        batch.publish({replica[:2] for replica in failed} & self._context.leaders.keys())
        batch.send()

    async def _remove(self, folder: str, names: Iterable[str]) -> None:
        for name in names:
            try:
                await self._term.election.fenced(Delete(f"{folder}/{name}"))
            except NoNode:
                continue
