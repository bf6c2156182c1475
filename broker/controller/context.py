"""The controller's context: nodes, assignments, leaders, and what is being deleted.

Source: docs/spec/cluster.md §2.3 and §2.5. Loaded from ZooKeeper at each election, dropped at
resign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from barnabas.protocol.zookeeper import znodes

from .replica_assignment import Assignment
from .state_transitions import PartitionStatus, ReplicaStatus

Partition = tuple[str, int]
"""Topic and partition number."""
Replica = tuple[str, int, int]
"""Topic, partition number and the node that hosts it."""


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A registered node."""

    id: int
    epoch: int
    """Broker epoch: the czxid of its registration."""
    registration: znodes.BrokerRegistration
    is_kafka_peer: bool = False
    """Its registration names no roles, so it is none of ours."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """A partition's state znode as last read or written."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    zk_version: int
    mzxid: int


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A reassignment under way: while it lasts a partition has its old replicas and its new."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


@dataclass(slots=True)
class ControllerContext:
    """All of the controller's state; one instance for one term of office."""

    nodes: dict[int, LiveNode] = field(default_factory=dict)
    suspected: dict[int, LiveNode] = field(default_factory=dict)
    """Registered nodes that fell silent: treated as dead until they are heard again."""
    shutting_down: set[int] = field(default_factory=set)
    assignments: dict[str, Assignment] = field(default_factory=dict)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    unreadable: set[str] = field(default_factory=set)
    """Topics that exist, but whose assignment nobody can make sense of."""
    leaders: dict[Partition, Leadership] = field(default_factory=dict)
    partitions: dict[Partition, PartitionStatus] = field(default_factory=dict)
    replicas: dict[Replica, ReplicaStatus] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    """Topics to delete that cannot be deleted yet: a replica is offline or refused."""
    failed_replicas: set[Replica] = field(default_factory=set)
    """Replicas whose node is alive but answered KAFKA_STORAGE_ERROR."""
    reassignments: dict[Partition, OngoingReassignment] = field(default_factory=dict)
    unacknowledged_replicas: set[Replica] = field(default_factory=set)
    """Replicas whose node answered LeaderAndIsr with an error that may pass: told again later."""
    undeleted_replicas: set[Replica] = field(default_factory=set)
    """Replicas moved away whose node has not said yet that they are deleted."""

    def is_live(self, node: int) -> bool:
        """The node may lead: it is registered and not shutting down."""
        return node in self.nodes and node not in self.shutting_down

    def is_online(self, node: int, partition: Partition) -> bool:
        """The replica can lead: its node is live and its disk works."""
        return self.is_live(node) and (*partition, node) not in self.failed_replicas

    def online_among(self, nodes: Iterable[int], partition: Partition) -> set[int]:
        """Those of ``nodes`` that are live and whose replica of ``partition`` can lead."""
        return {node for node in nodes if self.is_online(node, partition)}

    def assigned(self, partition: Partition) -> tuple[int, ...]:
        """The replicas of a partition in order; none when it is unknown."""
        return self.assignments.get(partition[0], {}).get(partition[1], ())

    def target(self, partition: Partition) -> tuple[int, ...]:
        """The replicas a partition is to have once its reassignment, if any, is through."""
        reassignment = self.reassignments.get(partition)
        gone = reassignment.removing if reassignment else ()
        return tuple(node for node in self.assigned(partition) if node not in gone)

    def origin(self, partition: Partition) -> tuple[int, ...]:
        """The replicas a partition had before its reassignment, if any."""
        reassignment = self.reassignments.get(partition)
        new = reassignment.adding if reassignment else ()
        return tuple(node for node in self.assigned(partition) if node not in new)

    def address(self, node: int, listener: str) -> tuple[str, int] | None:
        """Where a registered node listens under that name; None when it does not."""
        return self.nodes[node].registration.endpoints.get(listener)

    def partitions_of(self, topic: str) -> list[Partition]:
        """Every known partition of a topic."""
        return [(topic, index) for index in self.assignments.get(topic, {})]

    def replicas_of(self, partitions: Iterable[Partition]) -> list[Replica]:
        """Every assigned replica of the partitions."""
        return [(*p, node) for p in partitions for node in self.assigned(p)]

    def all_partitions(self) -> Iterator[Partition]:
        """Every known partition of every topic."""
        for topic in self.assignments:
            yield from self.partitions_of(topic)

    def replicas_on(self, nodes: Iterable[int]) -> list[Replica]:
        """Every replica assigned to one of the nodes."""
        wanted = set(nodes)
        return [r for r in self.replicas_of(self.all_partitions()) if r[2] in wanted]

    def offline_replicas(self, partition: Partition) -> list[int]:
        """Assigned replicas whose node is gone or whose disk failed."""
        return [
            node
            for node in self.assigned(partition)
            if node not in self.nodes or (*partition, node) in self.failed_replicas
        ]

    def forget_topic(self, topic: str) -> None:
        """Drop everything known of a topic."""
        for partition in self.partitions_of(topic):
            self.partitions.pop(partition, None)
            self.leaders.pop(partition, None)
            self.reassignments.pop(partition, None)
            for node in self.assigned(partition):
                self.replicas.pop((*partition, node), None)
                self.failed_replicas.discard((*partition, node))
                self.unacknowledged_replicas.discard((*partition, node))
        self.assignments.pop(topic, None)
        self.topic_ids.pop(topic, None)
        self.deleting.discard(topic)
        self.waiting.discard(topic)
