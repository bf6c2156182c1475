"""Partition reassignment: the new replicas catch up, then the old ones go.

Source: docs/spec/cluster.md §2.12. The plain target is written last, so a new controller goes on.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from barnabas.client.zookeeper.interface import (
    BadVersion,
    Delete,
    NoNode,
    Set,
    ZooKeeperError,
    read_if_any,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import znodes

from .context import Leadership, OngoingReassignment, Partition
from .replica_assignment import CandidateNode, candidates_for
from .state_transitions import ReplicaStatus
from .term import ControllerTerm

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 20
"""Writes lost in a row to others who change the same znode."""

AT_ONCE: Final = 20
"""How many moves are begun before the controller looks at what else happened."""

RetryDeletions = Callable[[Collection[str]], Awaitable[None]]
ReassignmentOutcome = Refused | None
"""Why a partition is not moved; None when it is."""


class Reassignments:
    """Moves partitions, for requests and for the znode that tools write."""

    def __init__(
        self, term: ControllerTerm, retry_deletions: Callable[[Collection[str]], Awaitable[None]]
    ) -> None:
        self._term = term
        self._context = term.context
        self._retry_deletions = retry_deletions
        self._watched: set[Partition] = set()
        self._by_znode: set[Partition] = set()
        """Moves under way that a tool asked for."""
        self._not_begun: set[Partition] = set()
        """Wishes of a tool that wait until others are begun."""

    async def alter(
        self, wishes: Mapping[Partition, Sequence[int] | None]
    ) -> dict[Partition, ReassignmentOutcome]:
        """Begin to move each partition, or call its move off (None); what became of each wish.

        UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT or NO_REASSIGNMENT_IN_PROGRESS.
        The latest wish counts: a tool's former one, left in its znode, would be begun again and
        undo this one. So it is struck out before anything begins, as in Kafka's
        processApiPartitionReassignment.
        """
        targets, outcomes = self._targets(wishes)
        self._by_znode -= targets.keys()
        self._not_begun -= targets.keys()
        if targets:
            await self._strike(targets)
        for partition, target in targets.items():
            await self._start(partition, target)
        return outcomes

    async def resume(self, partitions: Iterable[Partition] | None = None) -> None:
        """Take moves as far as they can go now; all of them when none is named."""
        wanted = self._context.reassignments.keys() if partitions is None else set(partitions)
        for partition in sorted(wanted & self._context.reassignments.keys()):
            await self._advance(partition)

    async def process_admin_znode(self) -> None:
        """Move what a tool wrote into the admin znode; what is done, or refused, is struck out."""
        watch = self._term.watch("reassignments", self.process_admin_znode)
        self._not_begun = set()
        if await self._term.zookeeper.exists(znodes.REASSIGN_PARTITIONS, watch) is None:
            return
        found = await read_if_any(self._term.zookeeper, znodes.REASSIGN_PARTITIONS)
        try:
            items = znodes.ReassignPartitions.from_json(found[0] if found else b"").partitions
        except ValueError as error:
            log.error("removed a wish for other replicas that cannot be read: %s", error)
            await self._strike(None)
            return
        wishes = {(topic, index): nodes for topic, index, nodes in items}
        fresh = [name for name in wishes if wishes[name] != self._context.target(name)]
        self._not_begun = set(fresh[AT_ONCE:])
        if self._not_begun:
            self._term.later("reassignments", self.process_admin_znode)
        targets, outcomes = self._targets({name: wishes[name] for name in fresh[:AT_ONCE]})
        for partition, target in targets.items():
            await self._start(partition, target)
        refused = outcomes.keys() - targets.keys()
        for partition in sorted(refused):
            log.warning("refused to move partition=%s-%d: %s", *partition, outcomes[partition])
        moving = (wishes.keys() & self._context.reassignments.keys()) - refused
        self._by_znode |= moving - self._not_begun
        done = wishes.keys() - moving - self._not_begun
        if done or not wishes:
            await self._strike(done)

    def _targets(
        self, wishes: Mapping[Partition, Sequence[int] | None]
    ) -> tuple[dict[Partition, tuple[int, ...]], dict[Partition, ReassignmentOutcome]]:
        """Where each partition is to go, of those that may; and what is to be said of each wish."""
        targets: dict[Partition, tuple[int, ...]] = {}
        outcomes: dict[Partition, ReassignmentOutcome] = {}
        for partition, wish in wishes.items():
            try:
                targets[partition] = self._judged(partition, wish)
                outcomes[partition] = None
            except Refused as refusal:
                outcomes[partition] = refusal
        return targets, outcomes

    def _judged(self, partition: Partition, wish: Sequence[int] | None) -> tuple[int, ...]:
        topic, _index = partition
        # What does not exist is not being moved either: Kafka looks no further.
        is_moving = partition in self._context.reassignments or partition in self._not_begun
        if wish is None and not is_moving:
            raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not being moved")
        if topic in self._context.deleting or not self._context.assigned(partition):
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        if wish is None:
            return self._context.origin(partition)
        if not wish or len(set(wish)) != len(wish) or min(wish) < 0:
            raise _misassigned("at least one replica is needed, none twice, no id below 0")
        added = set(wish) - set(self._context.origin(partition))
        strangers = sorted(added - self._hosts(topic, added))
        if strangers:
            raise _misassigned(f"nodes {strangers} are not live or not of the topic's role")
        return tuple(wish)

    def _hosts(self, topic: str, added: Iterable[int]) -> set[int]:
        """Those of ``added`` that may get a replica of the topic.

        A replica that stays is not asked about: with its node down the others can still be moved.
        """
        known = self._context.nodes
        nodes = (
            CandidateNode(node, roles=frozenset(known[node].registration.roles))
            for node in added
            if node in known
        )
        return {node.id for node in candidates_for(topic, nodes)}

    async def _start(self, partition: Partition, target: tuple[int, ...]) -> None:
        """Write the goal down, tell the new replicas; a former goal of the partition is dropped."""
        former = self._context.assigned(partition)
        origin = self._context.origin(partition)
        if target == self._context.target(partition):
            await self.resume([partition])
            return
        both = tuple(dict.fromkeys((*target, *origin)))
        reassignment = OngoingReassignment(
            adding=tuple(node for node in both if node not in origin),
            removing=tuple(node for node in both if node not in target),
        )
        await self._write(partition, both, reassignment)
        self._context.assignments[partition[0]][partition[1]] = both
        self._context.reassignments[partition] = reassignment
        log.info("began to move partition=%s-%d from=%s to=%s", *partition, origin, target)
        dropped = [node for node in former if node not in both]
        if await self._announce(partition):
            await self._remove(partition, dropped)
            await self._advance(partition)

    async def _announce(self, partition: Partition) -> bool:
        """A new epoch with the new replicas; whether the partition has a state at all."""
        machine = self._term.partitions
        batch = self._term.batch()
        self._add_replicas(partition)
        if partition not in self._context.leaders:
            await machine.elect_missing_leaders(batch)
        state = self._context.leaders.get(partition)
        if state is not None:
            may_stay = state.leader in self._context.assigned(partition)
            strategy = machine.unchanged if may_stay else machine.moved
            await machine.elect([partition], strategy, batch)
        new = [
            replica
            for replica in self._context.replicas_of([partition])
            if self._context.replicas.get(replica) is ReplicaStatus.NEW
            and replica[2] in self._context.nodes
        ]
        self._term.replicas.become(new, ReplicaStatus.ONLINE, batch)
        batch.send()
        return partition in self._context.leaders

    def _add_replicas(self, partition: Partition) -> None:
        new = [
            replica
            for replica in self._context.replicas_of([partition])
            if replica not in self._context.replicas
        ]
        self._context.undeleted_replicas -= set(new)
        self._term.replicas.become(new, ReplicaStatus.NEW, self._term.batch())

    async def _advance(self, partition: Partition) -> None:
        """Finish a move whose new replicas are all in sync; otherwise look again at a change."""
        known = self._context.leaders.get(partition)
        state = await self._watched_state(partition)
        if state is None:
            return
        reassignment, target = (
            self._context.reassignments[partition],
            self._context.target(partition),
        )
        if (reassignment.adding or reassignment.removing) and not set(target) <= set(state.isr):
            if known is None or known.zk_version != state.zk_version:
                self._publish(partition)
            return
        replicas = self._context.assignments[partition[0]]
        former, replicas[partition[1]] = replicas[partition[1]], target
        del self._context.reassignments[partition]
        if not await self._lead_from(target, partition):
            log.warning(
                "put off the end of a move: no replica that stays can lead %s-%d", *partition
            )
            replicas[partition[1]], self._context.reassignments[partition] = former, reassignment
            return
        await self._remove(partition, reassignment.removing)
        await self._write(partition, target, None)
        self._publish(partition)
        log.info("moved partition=%s-%d replicas=%s", *partition, target)
        self._end_wish(partition)
        await self._retry_deletions({partition[0]})

    async def _watched_state(self, partition: Partition) -> Leadership | None:
        async def changed() -> None:
            self._watched.discard(partition)
            await self.resume([partition])

        if partition not in self._watched:
            path = znodes.partition_state_path(*partition)
            watch = self._term.watch(f"state of {partition[0]}-{partition[1]}", changed)
            if await self._term.zookeeper.exists(path, watch) is not None:
                self._watched.add(partition)
        states = await self._term.states.read([partition])
        self._context.leaders.update(states)
        return states.get(partition)

    async def _lead_from(self, target: Collection[int], partition: Partition) -> bool:
        """Have a replica that stays lead, in a new epoch; whether one does."""
        leader = self._context.leaders[partition].leader
        machine = self._term.partitions
        may_stay = leader in target and self._context.is_online(leader, partition)
        batch = self._term.batch()
        strategy = machine.unchanged if may_stay else machine.moved
        elected = await machine.elect([partition], strategy, batch)
        batch.send()
        return bool(elected)

    async def _remove(self, partition: Partition, nodes: Iterable[int]) -> None:
        """Take replicas out of the in-sync set and delete them; an absent node does it later."""
        replicas = [(*partition, node) for node in nodes]
        if not replicas:
            return
        machine, batch = self._term.replicas, self._term.batch()
        present = [replica for replica in replicas if replica in self._context.replicas]
        await machine.go_offline(present, batch)
        self._context.undeleted_replicas |= set(replicas)
        for status in (
            ReplicaStatus.DELETION_STARTED,
            ReplicaStatus.DELETION_SUCCESSFUL,
            ReplicaStatus.NON_EXISTENT,
        ):
            machine.become(present, status, batch)
        batch.send()

    def _publish(self, partition: Partition) -> None:
        batch = self._term.batch()
        batch.publish([partition])
        batch.send()

    async def _write(
        self,
        partition: Partition,
        replicas: tuple[int, ...],
        reassignment: OngoingReassignment | None,
    ) -> None:
        """Change one partition in the topic's znode; others may add partitions meanwhile."""
        topic, index = partition
        for _ in range(ATTEMPTS_MAX):
            data, stat = await self._term.zookeeper.get(znodes.topic_path(topic))
            try:
                record = znodes.TopicAssignment.from_json(data)
            except ValueError as error:
                raise ZooKeeperError(
                    f"{znodes.topic_path(topic)} cannot be read: {error}"
                ) from None
            changed = dataclasses.replace(
                record,
                partitions={**record.partitions, index: replicas},
                adding=_with(record.adding, index, reassignment.adding if reassignment else ()),
                removing=_with(
                    record.removing, index, reassignment.removing if reassignment else ()
                ),
            )
            operation = Set(znodes.topic_path(topic), changed.to_json(), stat.version)
            try:
                await self._term.election.fenced(operation)
                return
            except BadVersion:
                continue
        raise ZooKeeperError(f"others keep changing {znodes.topic_path(topic)}")

    def _end_wish(self, partition: Partition) -> None:
        """Have a tool's wish struck out, together with all others that are fulfilled by then."""
        if partition in self._by_znode:
            self._by_znode.discard(partition)
            self._term.watch("reassignments", self.process_admin_znode)()

    async def _strike(self, partitions: Collection[Partition] | None) -> None:
        """Take partitions out of the admin znode, which goes when empty; None takes it away.

        The next znode of a tool is looked at in a turn of its own: it came after the wish of the
        request that may be under way, and counts more.
        """
        path = znodes.REASSIGN_PARTITIONS
        while (found := await read_if_any(self._term.zookeeper, path)) is not None:
            data, stat = found
            left: list[znodes.Reassignment] = []
            if partitions is not None:
                wishes = _wishes(data)
                left = [wish for wish in wishes if wish[:2] not in partitions]
                if left and len(left) == len(wishes):
                    return
            rest = znodes.ReassignPartitions(partitions=tuple(left)).to_json()
            try:
                await self._term.election.fenced(
                    Set(path, rest, stat.version) if left else Delete(path, stat.version)
                )
            except (BadVersion, NoNode):
                continue
            if not left:
                self._term.watch("reassignments", self.process_admin_znode)()
            return


def _wishes(data: bytes) -> Sequence[znodes.Reassignment]:
    """None at all where they cannot be read: such a znode is deleted."""
    try:
        return znodes.ReassignPartitions.from_json(data).partitions
    except ValueError:
        return ()


def reassignments_in(record: znodes.TopicAssignment) -> dict[int, OngoingReassignment]:
    """The reassignments that a topic's znode says are under way, by partition."""
    return {
        index: OngoingReassignment(
            adding=tuple(record.adding.get(index, ())),
            removing=tuple(record.removing.get(index, ())),
        )
        for index in record.adding.keys() | record.removing.keys()
        if index in record.partitions
    }


def _with(
    known: Mapping[int, tuple[int, ...]], index: int, nodes: tuple[int, ...]
) -> dict[int, tuple[int, ...]]:
    rest = {other: replicas for other, replicas in known.items() if other != index}
    return {**rest, index: nodes} if nodes else rest


def _misassigned(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
