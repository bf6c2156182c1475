"""What the cluster keeps in ZooKeeper about itself: ids, assignments, leaders.

Source: docs/spec/cluster.md §1.2 to §1.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from barnabas.protocol.names import uuid_bytes, uuid_text

from . import json_fields as js


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterId:
    """The id all nodes of a cluster share, 22 letters, never changed."""

    cluster_id: str

    def to_json(self) -> bytes:
        """The payload; its version is text, unlike all others."""
        return js.dump({"version": "1", "id": self.cluster_id})

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload."""
        return cls(cluster_id=js.text(js.load(data), "id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRecord:
    """Who is controller, and since when."""

    broker_id: int
    timestamp: int

    def to_json(self) -> bytes:
        """The payload, as Kafka 3.4 and later write it."""
        return js.dump(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp),
                "kraftControllerEpoch": -1,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload."""
        values = js.load(data)
        return cls(
            broker_id=js.number(values, "brokerid"),
            timestamp=js.number_text(values, "timestamp", -1),
        )


LAST_EPOCH: Final = (1 << 31) - 1
"""No election can follow it, so nobody is ever in it."""
_NOBODY: Final = -2
"""The lowest leader: of a topic that is being deleted. Kafka writes -1 where there is none."""
VOTERS_MAX: Final = 1000
SESSION_MS_MAX: Final = 3_600_000
"""What names more voters, or a longer session, is not of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VotersRecord:
    """Whose acknowledgements give a controller authority (docs/beacons.md, points 12 to 15)."""

    voters: tuple[int, ...]
    """In order; none: authority comes from ZooKeeper alone."""
    session_ms: int
    """How long authority may outlast the last confirmed check of the role."""
    controller_epoch: int
    """Of the controller that is bound by this."""

    def to_json(self) -> bytes:
        """The payload."""
        return js.dump(
            {
                "version": 1,
                "voters": list(self.voters),
                "session_ms": self.session_ms,
                "controller_epoch": self.controller_epoch,
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload; raises ValueError for what no node of ours has written."""
        values = js.load(data)
        if js.number(values, "version") != 1:
            raise ValueError("a version that is not known")
        record = cls(
            voters=js.numbers(values, "voters"),
            session_ms=js.number(values, "session_ms"),
            controller_epoch=js.number(values, "controller_epoch"),
        )
        voters = record.voters
        if len(voters) > VOTERS_MAX or len(set(voters)) < len(voters) or min(voters, default=0) < 0:
            raise ValueError("voters that are no distinct node ids")
        if not bool(voters) <= record.session_ms <= SESSION_MS_MAX:
            raise ValueError(f"session_ms is {record.session_ms}")
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAssignment:
    """The replicas of each partition of a topic; the first of them is preferred as leader.

    ``adding`` and ``removing`` hold only partitions being reassigned. ``topic_id`` is None in
    topics that were created without one.
    """

    partitions: Mapping[int, tuple[int, ...]]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    topic_id: bytes | None = None

    def to_json(self) -> bytes:
        """The payload, as Kafka 2.8 and later write it."""
        values: dict[str, Any] = {
            "version": 3,
            "partitions": _replicas_json(self.partitions),
            "adding_replicas": _replicas_json(self.adding),
            "removing_replicas": _replicas_json(self.removing),
        }
        if self.topic_id is not None:
            values["topic_id"] = uuid_text(self.topic_id)
        return js.dump(values)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload of version 1 to 3; raises ValueError for what nobody could host."""
        values = js.load(data)
        topic_id = js.text(values, "topic_id", "")
        return cls(
            partitions=_replicas(js.mapping(values, "partitions"), least=1),
            adding=_replicas(js.mapping(values, "adding_replicas", {})),
            removing=_replicas(js.mapping(values, "removing_replicas", {})),
            topic_id=uuid_bytes(topic_id) if topic_id else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Who leads a partition (-1: nobody) and who is in sync; written only conditionally."""

    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: tuple[int, ...]
    leader_recovery_state: int = 0

    def to_json(self) -> bytes:
        """The payload; the recovery state is told only when it says something."""
        values: dict[str, Any] = {
            "version": 1,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "controller_epoch": self.controller_epoch,
            "isr": list(self.isr),
        }
        if self.leader_recovery_state:
            values["leader_recovery_state"] = self.leader_recovery_state
        return js.dump(values)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload."""
        values = js.load(data)
        state = cls(
            leader=js.number(values, "leader"),
            leader_epoch=js.number(values, "leader_epoch"),
            controller_epoch=js.number(values, "controller_epoch"),
            isr=_nodes(values, "isr"),
            leader_recovery_state=js.number(values, "leader_recovery_state", 0),
        )
        if not 0 <= state.leader_epoch < LAST_EPOCH or state.leader < _NOBODY:
            raise ValueError(f"a leader {state.leader} in the epoch {state.leader_epoch}")
        return state


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlock:
    """The last block of producer ids that was taken; both ends belong to it."""

    broker: int
    start: int
    end: int

    def to_json(self) -> bytes:
        """The payload; the ends of the block are text."""
        return js.dump(
            {
                "version": 1,
                "broker": self.broker,
                "block_start": str(self.start),
                "block_end": str(self.end),
            }
        )

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a payload."""
        values = js.load(data)
        block = cls(
            broker=js.number(values, "broker"),
            start=js.number_text(values, "block_start"),
            end=js.number_text(values, "block_end"),
        )
        if not 0 <= block.start <= block.end:
            raise ValueError(f"a block from {block.start} to {block.end}")
        return block


def _replicas(values: Mapping[str, Any], least: int = 0) -> dict[int, tuple[int, ...]]:
    """By partition, ``least`` of each or more."""
    found = {int(partition): _nodes(values, partition) for partition in values}
    if any(partition < 0 or partition not in js.INT32 for partition in found):
        raise ValueError("a number of a partition that is none")
    if any(len(nodes) < least for nodes in found.values()):
        raise ValueError("a partition without replicas")
    return found


def _nodes(values: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Ids of nodes, none twice."""
    found = js.numbers(values, name)
    if min(found, default=0) < 0 or len(set(found)) < len(found):
        raise ValueError(f"{name} is {found}, not distinct ids of nodes")
    return found


def _replicas_json(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(partition): list(replicas[partition]) for partition in sorted(replicas)}
