"""OffsetCommit (key 8): stores the consumed offsets of a group.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §1.6; version 0 goes to ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, array, message, wire


@message()
class Partition:
    """One offset to store."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=6, default=-1)
    commit_timestamp: int = wire(INT64, since=1, until=1, default=-1)
    """Version 1 only; -1 for the time of arrival."""
    committed_metadata: str | None = wire(STRING, null_since=0)


@message()
class Topic:
    """The offsets of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[Partition] = wire(array(Partition, is_in_rows=True))


@message(key=8, versions=(0, 9), advertised=9, flexible=8)
class OffsetCommitRequest:
    """What a member of a group has consumed."""

    group_id: str = wire(STRING)
    generation_id_or_member_epoch: int = wire(INT32, since=1, default=-1)
    """-1 outside of group membership."""
    member_id: str = wire(STRING, since=1)
    group_instance_id: str | None = wire(STRING, since=7, null_since=7, default=None)
    retention_time_ms: int = wire(INT64, since=2, until=4, default=-1)
    """-1 for the broker's own retention."""
    topics: Sequence[Topic] = wire(array(Topic))


@message()
class PartitionResult:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message()
class TopicResult:
    """The outcomes for one topic."""

    name: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult, is_in_rows=True))


@message(key=8, versions=(0, 9), flexible=8)
class OffsetCommitResponse:
    """A code for each partition."""

    throttle_time_ms: int = wire(INT32, since=3)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
