"""OffsetDelete (key 47): deletes single offsets of a group.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §1.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, STRING, array, message, wire


@message()
class Partition:
    """One partition."""

    partition_index: int = wire(INT32)


@message()
class Topic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[Partition] = wire(array(Partition))


@message(key=47, versions=(0, 0), advertised=0)
class OffsetDeleteRequest:
    """The offsets to delete."""

    group_id: str = wire(STRING)
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
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=47, versions=(0, 0))
class OffsetDeleteResponse:
    """The outcome for each offset."""

    error_code: int = wire(INT16)
    throttle_time_ms: int = wire(INT32)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
