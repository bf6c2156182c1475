"""Preferred leaders: leadership given back to the first replica, by time or when a tool asks.

The first of a partition's assigned replicas is its preferred leader: assignments spread these over
the nodes, and a cluster in which others lead is out of balance. Elections of this kind lose nothing
(the preferred replica must be live and in sync) and change the in-sync set in no way.

    by time        every leader.imbalance.check.interval.seconds, for nodes that lack too many
    by a tool      /admin/preferred_replica_election (kafka-preferred-replica-election)
    by a request   ElectLeaders: elect_leaders.py

Source: docs/spec/cluster.md §1.5, §2.3 (9) and §2.6; KafkaController's
checkAndTriggerAutoLeaderRebalance (3.9).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from barnabas.client.zookeeper.interface import Delete, NoNode, read_if_any
from barnabas.protocol.zookeeper import znodes

from .context import Partition
from .term import ControllerTerm

log = logging.getLogger(__name__)


class PreferredLeaderElections:
    """What gives leadership back, but for the requests of administrators."""

    def __init__(self, term: ControllerTerm) -> None:
        self._term = term
        self._context = term.context

    async def balance(self) -> None:
        """Give leadership back to nodes that lead too few of those they are first for.

        Only beyond ``leader.imbalance.per.broker.percentage``: every election is a moment without
        a leader for clients. Partitions being moved are left alone; their first replica changes.
        """
        share = self._term.dependencies.settings.leader_imbalance_percentage / 100
        by_preferred: dict[int, list[Partition]] = {}
        for partition in self._context.leaders:
            is_settled = partition not in self._context.reassignments
            if is_settled and partition[0] not in self._context.deleting:
                by_preferred.setdefault(self._context.assigned(partition)[0], []).append(partition)
        for node, partitions in sorted(by_preferred.items()):
            led_by_others = [p for p in partitions if self._context.leaders[p].leader != node]
            if self._context.is_live(node) and len(led_by_others) > share * len(partitions):
                await self.elect(led_by_others)

    async def process_admin_znode(self) -> None:
        """Give leadership to the first replicas a tool named; the znode is then gone."""
        watch = self._term.watch("preferred election", self.process_admin_znode)
        if await self._term.zookeeper.exists(znodes.PREFERRED_ELECTION, watch) is None:
            return
        found = await read_if_any(self._term.zookeeper, znodes.PREFERRED_ELECTION)
        try:
            request = znodes.PreferredElection.from_json(found[0] if found else b"")
            await self.elect([(topic, index) for topic, index in request.partitions])
        except ValueError as error:
            log.error("ignored a request for preferred leaders that cannot be read: %s", error)
        try:
            await self._term.election.fenced(Delete(znodes.PREFERRED_ELECTION))
        except NoNode:
            pass
        await self.process_admin_znode()

    async def elect(self, partitions: Iterable[Partition]) -> None:
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
