"""Topics and partitions that appear in ZooKeeper: read, given leaders, announced.

Source: docs/spec/cluster.md §1.3 and §2.9.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Iterable, Mapping

from barnabas.broker.metadata.random_uuid import new_topic_id
from barnabas.client.zookeeper.interface import BadVersion, NoNode, Set, Stat
from barnabas.protocol.names import topic_problem
from barnabas.protocol.zookeeper import znodes

from .context import Partition
from .partition_state_znodes import chunks
from .reassignment import reassignments_in
from .state_transitions import PartitionStatus, ReplicaStatus
from .term import ControllerTerm
from .topic_deletion import TopicDeletion

log = logging.getLogger(__name__)


class TopicChanges:
    """What the controller does when ``/brokers/topics`` or a topic below it changes."""

    def __init__(self, term: ControllerTerm, deletion: TopicDeletion) -> None:
        self._term = term
        self._context = term.context
        self._deletion = deletion

    async def read_names(self) -> set[str]:
        """Every topic, watching for more."""
        watch = self._term.watch("topics", self.changed)
        names = await self._term.zookeeper.children(znodes.BROKER_TOPICS, watch)
        return {name for name in names if topic_problem(name) is None}

    async def read(self, names: Iterable[str]) -> None:
        """Take the assignments of topics into the context, watching each for added partitions."""
        for chunk in chunks(sorted(names)):
            assignments = await asyncio.gather(*map(self._read_one, chunk))
            for name, assignment in zip(chunk, assignments, strict=True):
                if assignment is not None:
                    self._context.assignments[name] = dict(assignment.partitions)
                    for index, reassignment in reassignments_in(assignment).items():
                        self._context.reassignments[name, index] = reassignment
                    if assignment.topic_id is not None:
                        self._context.topic_ids[name] = assignment.topic_id

    async def changed(self) -> None:
        """Give new topics their leaders; forget those whose znode somebody removed."""
        names = await self.read_names()
        for gone in self._context.assignments.keys() - names:
            self._context.forget_topic(gone)
        self._context.unreadable &= names
        new = names - self._context.assignments.keys()
        await self.read(new)
        partitions = [p for name in sorted(new) for p in self._context.partitions_of(name)]
        if partitions:
            log.info("found new topics=%s partitions=%d", sorted(new), len(partitions))
        await self._begin(partitions)
        await self._deletion.changed()

    async def partitions_changed(self, name: str) -> None:
        """Begin partitions that were added to a znode; a topic being deleted is not to grow."""
        known = self._context.assignments.get(name)
        if known is None:
            return
        assignment = await self._read_one(name)
        if assignment is None:
            return
        added = {
            index: replicas
            for index, replicas in assignment.partitions.items()
            if index not in known
        }
        if added and name in self._context.deleting:
            await self._restore(name, assignment, known)
            return
        known.update(added)
        if added:
            log.info("found new partitions topic=%s partitions=%s", name, sorted(added))
        await self._begin((name, index) for index in sorted(added))

    async def _begin(self, partitions: Iterable[Partition]) -> None:
        """From not existing to led, and every replica told."""
        new = list(partitions)
        if not new:
            return
        batch = self._term.batch()
        self._term.partitions.become(new, PartitionStatus.NEW)
        replicas = self._context.replicas_of(new)
        self._term.replicas.become(replicas, ReplicaStatus.NEW, batch)
        await self._term.partitions.create(new, batch)
        self._term.replicas.become(replicas, ReplicaStatus.ONLINE, batch)
        batch.send()

    async def _restore(
        self,
        name: str,
        grown: znodes.TopicAssignment,
        known: Mapping[int, tuple[int, ...]],
    ) -> None:
        log.warning("undid added partitions: the topic is being deleted topic=%s", name)
        former = dataclasses.replace(grown, partitions=dict(known))
        await self._term.election.fenced(Set(znodes.topic_path(name), former.to_json()))

    async def _read_one(self, name: str) -> znodes.TopicAssignment | None:
        async def changed() -> None:
            await self.partitions_changed(name)

        watch = self._term.watch(f"topic {name}", changed)
        try:
            data, stat = await self._term.zookeeper.get(znodes.topic_path(name), watch)
            assignment = znodes.TopicAssignment.from_json(data)
        except NoNode:
            return None
        except ValueError as error:
            log.error("ignored a topic that cannot be read topic=%s: %s", name, error)
            self._context.unreadable.add(name)
            return None
        self._context.unreadable.discard(name)
        if assignment.topic_id is None:
            return await self._with_id(name, assignment, stat)
        return assignment

    async def _with_id(
        self, name: str, assignment: znodes.TopicAssignment, stat: Stat
    ) -> znodes.TopicAssignment:
        """Topics of older tools come without an id; either all topics have one or none may."""
        known = self._context.topic_ids.get(name)
        topic_id = known or new_topic_id(self._term.dependencies.rng)
        named = dataclasses.replace(assignment, topic_id=topic_id)
        try:
            await self._term.election.fenced(
                Set(znodes.topic_path(name), named.to_json(), stat.version)
            )
        except (BadVersion, NoNode):
            log.info("left a topic without id: it changed meanwhile topic=%s", name)
            return assignment
        return named
