"""Reconciliation: what the controller believes is compared with ZooKeeper, a part at a time.

Everything else is driven by watches, notifications and answers, and each of them can be lost: a
watch with a connection that was suspended (kazoo's issues 29 and 151), a notification that a leader
did not manage to write, a LeaderAndIsr that a node refused for a reason that passed. In Kafka such
a loss lasts until the next controller; here it lasts until this comes by.

Only what differs is acted on, by the same code that a watch would have called, so a step that finds
nothing writes nothing and sends nothing. A step is one event of the controller's queue, 10 s after
the end of the last: no other event is handled meanwhile, hence the bound on its reads.

Source: docs/spec/cluster.md §1.9, whose watches this backs up.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from barnabas.client.zookeeper.interface import read_if_any
from barnabas.protocol.zookeeper import znodes

from .context import Partition
from .partition_state_znodes import chunks

if TYPE_CHECKING:
    from .components import ControllerComponents

log = logging.getLogger(__name__)

PARTITIONS_MAX: Final = 500
"""About how many partitions one step reads again; the next goes on behind them."""


class Reconciliation:
    """Reads without watches; only what differs goes the way it would have gone with them."""

    def __init__(self, components: ControllerComponents) -> None:
        self._term = components.term
        self._context = components.context
        self._components = components
        self._last_topic = ""
        """Name of the last topic that was read again; the empty one is before all others."""

    async def step(self) -> None:
        """Nodes, topics and admin znodes whole; of the partitions the next few.

        In the order of dependence: a node that was missed is started before its partitions are
        compared, and deletions are taken up last, when it is known again who can be reached.
        """
        if await self._components.nodes.are_others_registered():
            await self._components.nodes.changed()
        await self._compare_topics()
        await self._components.notifications.recheck()
        if await self._term.zookeeper.exists(znodes.PREFERRED_ELECTION):
            await self._components.preferred_leaders.process_admin_znode()
        if await self._term.zookeeper.exists(znodes.REASSIGN_PARTITIONS):
            await self._components.reassignments.process_admin_znode()
        await self._compare(self._next_partitions())
        await self._components.reassignments.resume()
        await self._components.deletion.recheck()
        await self._tell_again()

    async def _compare_topics(self) -> None:
        zookeeper = self._term.zookeeper
        names = set(await zookeeper.children(znodes.BROKER_TOPICS))
        known = self._context.assignments.keys() | self._context.unreadable
        if names != known:
            await self._components.topics.changed()
        elif set(await zookeeper.children(znodes.DELETE_TOPICS)) != self._context.deleting:
            await self._components.deletion.changed()

    def _next_partitions(self) -> list[Partition]:
        """The partitions of the topics behind the last ones, whole topics, begun anew at the end.

        Only the names are sorted: a cluster may have more partitions than a turn may look at. By
        name, not by position: topics come and go between two steps, and none is to be left out.
        """
        names = sorted(self._context.assignments)
        following = [name for name in names if name > self._last_topic] or names
        chosen: list[Partition] = []
        # Asked between topics and never inside of one: of a topic with more partitions than the
        # bound the last ones would not be reached.
        for name in following:
            if len(chosen) >= PARTITIONS_MAX:
                break
            chosen += self._context.partitions_of(name)
            self._last_topic = name
        return chosen

    async def _compare(self, partitions: list[Partition]) -> None:
        """Read assignments and states again; what leaders or others changed is told."""
        for chunk in chunks(sorted({topic for topic, _index in partitions})):
            found = await asyncio.gather(*map(self._has_grown, chunk))
            for topic, has_grown in zip(chunk, found, strict=True):
                if has_grown:
                    await self._components.topics.partitions_changed(topic)
        changed = []
        for partition, state in (await self._term.states.read(partitions)).items():
            known = self._context.leaders.get(partition)
            # A leader's own change of its ISR raises the version too; its notification was lost.
            if known is None or known.zk_version != state.zk_version:
                self._context.leaders[partition] = state
                changed.append(partition)
        if changed:
            log.info("found changed states partitions=%s", changed[:10])
            batch = self._term.batch()
            batch.publish(changed)
            batch.send()

    async def _has_grown(self, topic: str) -> bool:
        """Whether ZooKeeper has partitions that are not known; False for what cannot be read.

        Other replicas of a known partition are not taken over here: moves come by the admin znode.
        """
        found = await read_if_any(self._term.zookeeper, znodes.topic_path(topic))
        try:
            record = znodes.TopicAssignment.from_json(found[0] if found else b"")
        except ValueError:
            return False
        return not record.partitions.keys() <= self._context.assignments.get(topic, {}).keys()

    async def _tell_again(self) -> None:
        """Replicas that did not take their role over, and partitions that still lack a leader.

        A LeaderAndIsr that was refused is not sent again by its channel, which has its answer; a
        follower without a role fetches nothing, and its ISR stays short until somebody asks.
        """
        batch = self._term.batch()
        unacknowledged_replicas = self._term.without_deleting_topics(
            self._context.unacknowledged_replicas
        )
        # Cleared before they are told: an answer that refuses again puts its replica back.
        self._context.unacknowledged_replicas.clear()
        for topic, index, node in sorted(unacknowledged_replicas):
            if node in self._context.assigned((topic, index)):
                log.info("told a replica again partition=%s-%d node=%d", topic, index, node)
                batch.lead([node], (topic, index))
        await self._term.partitions.elect_missing_leaders(batch)
        batch.send()
