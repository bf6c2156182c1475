"""OffsetForLeaderEpoch (key 23): tells where a leader epoch ended.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §3.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, array, message, wire


@message()
class Partition:
    """One partition and the epoch asked about."""

    partition: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=2, default=-1)
    leader_epoch: int = wire(INT32)


@message()
class Topic:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: Sequence[Partition] = wire(array(Partition))


@message(key=23, versions=(0, 4), advertised=4, flexible=4)
class OffsetForLeaderEpochRequest:
    """The epoch each reader last saw."""

    replica_id: int = wire(INT32, since=3, default=-2)
    topics: Sequence[Topic] = wire(array(Topic))


@message()
class PartitionResult:
    """Where the epoch asked about, or the last before it, ended."""

    error_code: int = wire(INT16)
    partition: int = wire(INT32)
    leader_epoch: int = wire(INT32, since=1, default=-1)
    end_offset: int = wire(INT64, default=-1)


@message()
class TopicResult:
    """The answers for one topic."""

    topic: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=23, versions=(0, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    """Where the epochs ended in our log."""

    throttle_time_ms: int = wire(INT32, since=2)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
