"""OffsetFetch (key 9): reads the committed offsets of groups.

Source: docs/spec/coordinator.md §1.7 (v0 reads ZooKeeper); KIP-447 (v7), KIP-709 (v8).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT16, INT32, INT64, STRING, array, message, wire


@message()
class Topic:
    """The partitions of one topic: of the group, or from v8 of one group."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(array(INT32))


@message()
class Group:
    """One group and its partitions, from v8."""

    group_id: str = wire(STRING)
    member_id: str | None = wire(STRING, since=9, null_since=9, default=None)
    member_epoch: int = wire(INT32, since=9, default=-1)
    topics: Sequence[Topic] | None = wire(array(Topic), null_since=0)
    """None asks for every topic of the group."""


@message(key=9, versions=(0, 9), advertised=9, flexible=6)
class OffsetFetchRequest:
    """Which offsets to read; from v8 of several groups."""

    group_id: str = wire(STRING, until=7)
    topics: Sequence[Topic] | None = wire(array(Topic), until=7, null_since=2)
    """None asks for every topic of the group."""
    groups: Sequence[Group] = wire(array(Group), since=8)
    require_stable: bool = wire(BOOL, since=7)
    """Refuse with UNSTABLE_OFFSET_COMMIT where a transaction is open."""


@message()
class PartitionResult:
    """One stored offset; -1 for none."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=5, default=-1)
    metadata: str | None = wire(STRING, null_since=0)
    error_code: int = wire(INT16)


@message()
class TopicResult:
    """The offsets of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult, is_in_rows=True))


@message()
class GroupResult:
    """The offsets of one group, from v8."""

    group_id: str = wire(STRING)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
    error_code: int = wire(INT16)


@message(key=9, versions=(0, 9), flexible=6)
class OffsetFetchResponse:
    """The offsets, or why there are none."""

    throttle_time_ms: int = wire(INT32, since=3)
    topics: Sequence[TopicResult] = wire(array(TopicResult), until=7)
    error_code: int = wire(INT16, since=2, until=7)
    groups: Sequence[GroupResult] = wire(array(GroupResult), since=8)
