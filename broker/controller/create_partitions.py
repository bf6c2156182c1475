"""CreatePartitions: checks what is asked, then writes the topic's znode.

Source: docs/spec/cluster.md §2.9; Kafka 3.9 ZkAdminManager (codes and their order).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Final

from barnabas.client.zookeeper.interface import (
    BadVersion,
    NoNode,
    PayloadTooLarge,
    Set,
    ZooKeeper,
    ZooKeeperError,
)
from barnabas.coordinator.ports import OFFSETS_TOPIC, STATE_TOPICS
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import znodes

from .create_topics import PARTITIONS_MAX, live_nodes
from .replica_assignment import Assignment, assign_added, candidates_for

ATTEMPTS_MAX: Final = 20
"""Writes lost in a row to others who change the same topic."""

Pay = Callable[[int], None]

ManualAssignment = Sequence[Sequence[int]] | None
"""Replicas of the added partitions, chosen by hand; None leaves the choice to us."""


class PartitionCreator:
    """Adds partitions; a topic that is being reassigned or deleted does not grow."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def grow(
        self,
        topic: str,
        count: int,
        chosen: ManualAssignment,
        *,
        is_dry: bool,
        pay: Pay | None = None,
    ) -> int:
        """Have ``count`` partitions, written unless ``is_dry``; returns ``count``. Raises Refused:

        what ``pay`` raises, which is told once how many are added, before they are;
        UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION while the topic is being deleted,
        REASSIGNMENT_IN_PROGRESS, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
        INVALID_REPLICATION_FACTOR.
        """
        for _ in range(ATTEMPTS_MAX):
            if await self._zookeeper.exists(znodes.deletion_path(topic)) is not None:
                raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is being deleted")
            try:
                data, stat = await self._zookeeper.get(znodes.topic_path(topic))
                record = _assignment(topic, data)
                added = await self._added(topic, record, count, chosen)
                if is_dry:
                    return count
                if pay is not None:
                    pay(len(added))
                    pay = None
                grown = dataclasses.replace(record, partitions={**record.partitions, **added})
                operation = Set(znodes.topic_path(topic), grown.to_json(), stat.version)
                await self._zookeeper.set(operation.path, operation.data, operation.version)
            except NoNode:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise Refused(code, f"there is no topic {topic}") from None
            except BadVersion:
                continue
            except PayloadTooLarge:
                reason = "the assignment is more than a znode can hold"
                raise Refused(ErrorCode.INVALID_PARTITIONS, reason) from None
            return count
        raise ZooKeeperError(f"others keep changing {znodes.topic_path(topic)}")

    async def _added(
        self, topic: str, record: znodes.TopicAssignment, count: int, chosen: ManualAssignment
    ) -> Assignment:
        existing = dict(record.partitions)
        if topic in STATE_TOPICS:
            # KAFKA-7801: a transaction would be ended by a coordinator that knows nothing of it.
            what = "groups" if topic == OFFSETS_TOPIC else "transactional ids"
            reason = f"{what} would be looked for in other partitions than their records are in"
            raise Refused(ErrorCode.INVALID_PARTITIONS, reason)
        if record.adding or record.removing:
            raise Refused(ErrorCode.REASSIGNMENT_IN_PROGRESS, f"{topic} is being reassigned")
        if count <= len(existing):
            reason = f"{topic} has {len(existing)} partitions: {count} is no more than that"
            raise Refused(ErrorCode.INVALID_PARTITIONS, reason)
        if count > PARTITIONS_MAX:
            reason = f"at most {PARTITIONS_MAX} partitions fit into a topic's znode"
            raise Refused(ErrorCode.INVALID_PARTITIONS, reason)
        nodes = candidates_for(topic, await live_nodes(self._zookeeper))
        factor = len(existing[0])
        if chosen is not None:
            return _judged(chosen, existing, count, factor, {node.id for node in nodes})
        if factor > len(nodes):
            reason = f"{factor} replicas need as many live nodes, there are {len(nodes)}"
            raise Refused(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
        return assign_added(nodes, existing=existing, partitions=count - len(existing))


def _assignment(topic: str, data: bytes) -> znodes.TopicAssignment:
    try:
        return znodes.TopicAssignment.from_json(data)
    except ValueError as error:
        reason = f"the assignment of {topic} cannot be read: {error}"
        raise Refused(ErrorCode.INVALID_PARTITIONS, reason) from None


def _judged(
    chosen: Sequence[Sequence[int]],
    existing: Assignment,
    count: int,
    factor: int,
    nodes: Collection[int],
) -> Assignment:
    missing = count - len(existing)
    if len(chosen) != missing:
        raise _misassigned(f"{missing} partitions are added, but {len(chosen)} are assigned")
    for replicas in chosen:
        if len(replicas) != factor or len(set(replicas)) != factor:
            raise _misassigned(f"{list(replicas)}: {factor} different nodes are needed")
        if strangers := sorted(set(replicas) - set(nodes)):
            raise _misassigned(f"nodes {strangers} are not live or not of the topic's role")
    return {len(existing) + index: tuple(replicas) for index, replicas in enumerate(chosen)}


def _misassigned(message: str) -> Refused:
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
