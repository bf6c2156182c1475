"""ListOffsets (key 2): finds offsets by time, and the ends of a log.

Source: docs/spec/protocol.md §2; docs/spec/log.md §6.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT8, INT16, INT32, INT64, STRING, array, message, wire


@message()
class Partition:
    """One partition, and the time to look for."""

    partition_index: int = wire(INT32)
    current_leader_epoch: int = wire(INT32, since=4, default=-1)
    timestamp: int = wire(INT64)
    """Milliseconds, or -1 latest, -2 earliest, -3 largest timestamp, -4 and -5 for tiers."""
    max_num_offsets: int = wire(INT32, until=0, default=1)
    """Version 0 may be told several segment boundaries."""


@message()
class Topic:
    """The partitions of one topic to look up."""

    name: str = wire(STRING)
    partitions: Sequence[Partition] = wire(array(Partition))


@message(key=2, versions=(0, 9), advertised=9, flexible=6)
class ListOffsetsRequest:
    """A point in time for each partition."""

    replica_id: int = wire(INT32)
    isolation_level: int = wire(INT8, since=2)
    topics: Sequence[Topic] = wire(array(Topic))


@message()
class PartitionResult:
    """What was found in one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    old_style_offsets: Sequence[int] = wire(array(INT64), until=0)
    """Version 0 only: descending segment boundaries."""
    timestamp: int = wire(INT64, since=1, default=-1)
    """The timestamp of the record found; -1 for an end of the log."""
    offset: int = wire(INT64, since=1, default=-1)
    leader_epoch: int = wire(INT32, since=4, default=-1)


@message()
class TopicResult:
    """What was found in one topic."""

    name: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=2, versions=(0, 9), flexible=6)
class ListOffsetsResponse:
    """The offset found for each partition."""

    throttle_time_ms: int = wire(INT32, since=2)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
