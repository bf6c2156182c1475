"""Topic deletion: marked, stopped on every node, deleted there, removed from ZooKeeper.

Source: docs/spec/cluster.md §2.11.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from barnabas.client.zookeeper.interface import Delete, NoNode, Op, ZooKeeper
from barnabas.protocol.zookeeper import znodes

from .context import Replica
from .partition_state_znodes import chunks
from .state_transitions import PartitionStatus, ReplicaStatus
from .term import ControllerTerm

log = logging.getLogger(__name__)

AT_ONCE: Final = 200
"""How many partitions are begun or removed before the controller looks at what else happened."""


class TopicDeletion:
    """Carries deletions through; a topic whose replicas cannot all be reached waits for them."""

    def __init__(self, term: ControllerTerm) -> None:
        self._term = term
        self._context = term.context
        self._due: OrderedDict[str, None] = OrderedDict()
        """Topics to look at, this turn or later."""

    async def read_markers(self) -> set[str]:
        """The topics whose deletion was asked for, watching for more."""
        watch = self._term.watch("deletions", self.changed)
        return set(await self._term.zookeeper.children(znodes.DELETE_TOPICS, watch))

    async def changed(self) -> None:
        """Take up new markers; those of unknown topics are removed, as if done."""
        marked = await self.read_markers()
        if not self._term.dependencies.may_delete_topics:
            log.warning("refused to delete topics: delete.topic.enable=false topics=%s", marked)
            await self._remove_markers(marked)
            return
        await self._remove_markers(marked - self._context.assignments.keys())
        new = (marked & self._context.assignments.keys()) - self._context.deleting
        if new:
            log.info("began to delete topics=%s", sorted(new))
            self._context.deleting |= new
        await self.resume(new)

    async def resume(self, topics: Collection[str] | None = None) -> None:
        """Take the deletion of ``topics``, of all when None, as far as it can go now.

        Of many topics the first few are taken up in this turn, the others in turns of their own:
        a node that fails meanwhile need not wait until all are gone.
        """
        deleting = self._context.deleting
        due = deleting if topics is None else deleting & set(topics)
        self._due.update(dict.fromkeys(sorted(due)))
        await self._take_turn()

    async def _take_turn(self) -> None:
        """Look at topics that are due until there is enough to do, and do it for all of them."""
        ready: list[str] = []
        deleted: list[str] = []
        partitions = 0
        while self._due and partitions < AT_ONCE:
            topic, _ = self._due.popitem(last=False)
            if topic not in self._context.deleting:
                continue
            replicas = self._replicas(topic)
            states = {self._context.replicas.get(replica) for replica in replicas}
            if states <= {ReplicaStatus.DELETION_SUCCESSFUL}:
                deleted.append(topic)
            elif topic in self._context.waiting or ReplicaStatus.DELETION_STARTED in states:
                continue
            elif all(self._is_reachable(replica) for replica in replicas):
                ready.append(topic)
            else:
                log.info("put off deleting a topic: a replica is offline topic=%s", topic)
                self._context.waiting.add(topic)
                continue
            partitions += len(self._context.partitions_of(topic))
        if self._due:
            self._term.watch("deletions under way", self._take_turn)()
        if ready:
            await self._begin(ready)
        for topic in deleted:
            await self._complete(topic)

    async def recheck(self) -> None:
        """Take up what waits: its replicas may be reachable by now."""
        for topic in sorted(self._context.waiting):
            if all(self._is_reachable(replica) for replica in self._replicas(topic)):
                self._context.waiting.discard(topic)
        await self.resume()

    async def retry(self, topics: Collection[str]) -> None:
        """A node that hosts the topics is back: what waited for it goes on."""
        deleting = sorted(self._context.deleting & set(topics))
        self._context.waiting.difference_update(deleting)
        unfinished = [
            replica
            for topic in deleting
            for replica in self._replicas(topic)
            if self._context.replicas.get(replica) is ReplicaStatus.DELETION_STARTED
        ]
        self.fail(unfinished, is_final=False)
        await self.resume(deleting)

    def fail(self, replicas: Iterable[Replica], *, is_final: bool = True) -> None:
        """Replicas that could not be deleted: their topics wait if ``is_final``."""
        batch = self._term.batch()
        started = [
            replica
            for replica in replicas
            if self._context.replicas.get(replica)
            in (ReplicaStatus.DELETION_STARTED, ReplicaStatus.OFFLINE)
        ]
        self._term.replicas.become(started, ReplicaStatus.DELETION_INELIGIBLE, batch)
        batch.send()
        if is_final:
            self._context.waiting |= {topic for topic, _index, _node in replicas}

    async def answered(self, gone: list[Replica], failed: list[Replica]) -> None:
        """A node did, or did not, delete the replicas it was told to."""
        batch = self._term.batch()
        topics = {replica[0] for replica in (*gone, *failed)}
        self._context.undeleted_replicas -= set(gone)
        failed = [replica for replica in failed if replica[0] in self._context.deleting]
        started = ReplicaStatus.DELETION_STARTED
        gone = [replica for replica in gone if self._context.replicas.get(replica) is started]
        self._term.replicas.become(gone, ReplicaStatus.DELETION_SUCCESSFUL, batch)
        batch.send()
        if failed:
            log.warning("could not delete replicas=%s", failed)
            self.fail(failed)
        await self.resume(topics)

    async def _begin(self, topics: Sequence[str]) -> None:
        """Nobody is to find the topics any more; then the replicas stop, then they are deleted.

        Each step is one order to a node, however many topics it is about.
        """
        partitions = [p for topic in topics for p in self._context.partitions_of(topic)]
        replicas = [
            replica
            for replica in self._context.replicas_of(partitions)
            if self._context.replicas.get(replica) is not ReplicaStatus.DELETION_SUCCESSFUL
        ]
        for partition in partitions:
            # Old and new replicas go alike. Were the move to end first, it might wait for ever:
            # nobody leads the partitions of a topic that is being deleted back into order.
            self._context.reassignments.pop(partition, None)
        batch = self._term.batch()
        machine = self._term.partitions
        gone = PartitionStatus.NON_EXISTENT
        known = [p for p in partitions if self._context.partitions.get(p, gone) is not gone]
        machine.become(machine.become(known, PartitionStatus.OFFLINE), gone)
        batch.publish(partitions)
        batch.send()
        await self._term.replicas.go_offline(replicas, batch)
        batch.send()
        self._term.replicas.become(replicas, ReplicaStatus.DELETION_STARTED, batch)
        batch.send()

    async def _complete(self, topic: str) -> None:
        batch = self._term.batch()
        replicas = self._replicas(topic)
        self._term.replicas.become(replicas, ReplicaStatus.NON_EXISTENT, batch)
        below = await descendants(self._term.zookeeper, znodes.topic_path(topic))
        for chunk in chunks(below):
            await self._term.election.fenced(*map(Delete, chunk))
        last: list[Op] = [Delete(znodes.topic_path(topic))]
        if await self._term.zookeeper.exists(znodes.topic_config_path(topic)):
            last.append(Delete(znodes.topic_config_path(topic)))
        last.append(Delete(znodes.deletion_path(topic)))
        await self._term.election.fenced(*last)
        self._context.forget_topic(topic)
        log.info("deleted topic=%s", topic)

    async def _remove_markers(self, topics: Collection[str]) -> None:
        for topic in sorted(topics):
            try:
                await self._term.election.fenced(Delete(znodes.deletion_path(topic)))
            except NoNode:
                continue

    def _replicas(self, topic: str) -> list[Replica]:
        return self._context.replicas_of(self._context.partitions_of(topic))

    def _is_reachable(self, replica: Replica) -> bool:
        return replica[2] in self._context.nodes and replica not in self._context.failed_replicas


async def descendants(zookeeper: ZooKeeper, path: str) -> list[str]:
    """Every znode below ``path``, children before their parents."""
    found: list[str] = []
    try:
        names = await zookeeper.children(path)
    except NoNode:
        return found
    for name in sorted(names):
        child = f"{path}/{name}"
        found += await descendants(zookeeper, child)
        found.append(child)
    return found
