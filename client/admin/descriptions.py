"""What Admin takes and returns: descriptions of topics, groups and their progress.

Source: docs/spec/users.md §2.1 (what Kafka's own tools show) and §3 (our definition of lag).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.cluster import Node, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create; -1 leaves the number to the cluster's defaults."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition: who leads it, who copies it, who keeps up."""

    partition: int
    leader: int | None
    """None while there is none."""
    replicas: Sequence[int]
    in_sync: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic and its partitions, in their order."""

    name: str
    is_internal: bool
    partitions: Sequence[PartitionDescription]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingDescription:
    """One setting of a topic, or of a group: its value, and where that comes from."""

    name: str
    value: str | None
    """None when the broker does not tell it."""
    source: str
    """Kafka's word: ``DYNAMIC_TOPIC_CONFIG`` for one that the topic itself was given,
    ``DYNAMIC_GROUP_CONFIG`` for one of the group."""
    is_sensitive: bool = False

    @property
    def is_set(self) -> bool:
        """Somebody set it, for the topic or group, or for its brokers."""
        return self.source != "DEFAULT_CONFIG"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GroupListing:
    """One group among all."""

    group: str
    protocol_type: str
    state: str
    """Empty when the broker is older than ListGroups version 4."""
    coordinator: int
    group_type: str = ""
    """``classic`` or ``consumer``; empty when the broker is older than ListGroups version 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member of a group and what it was given."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    """With the slash that Kafka puts before an address."""
    assignment: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group as its coordinator sees it."""

    group: str
    state: str
    protocol_type: str
    assignor: str
    """The assignment strategy the members agreed on; empty when there are none."""
    coordinator: Node
    members: Sequence[MemberDescription]

    @property
    def exists(self) -> bool:
        """False for a group that nobody ever used, or that was deleted."""
        return self.state != "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A committed offset, and what was committed with it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a group is in one partition; None stands for what is not known.

    ``topic`` and ``partition`` are None for a member that was given no partition.
    """

    group: str
    topic: str | None = None
    partition: int | None = None
    current_offset: int | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    member: MemberDescription | None = None

    @property
    def lag(self) -> int | None:
        """Records still to be read: those below the log's start are gone, hence not counted."""
        if self.current_offset is None or self.log_end_offset is None:
            return None
        position = max(self.current_offset, self.log_start_offset or 0)
        return max(0, self.log_end_offset - position)
