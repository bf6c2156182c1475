"""DeleteRecords (key 21): moves the start of a log forward.

Source: docs/spec/protocol.md §2; docs/spec/log.md §6.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, array, message, wire


@message()
class Partition:
    """One partition and the first offset to keep; -1 for the high watermark."""

    partition_index: int = wire(INT32)
    offset: int = wire(INT64)


@message()
class Topic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[Partition] = wire(array(Partition))


@message(key=21, versions=(0, 2), advertised=2, flexible=2)
class DeleteRecordsRequest:
    """The first offset each partition is to keep."""

    topics: Sequence[Topic] = wire(array(Topic))
    timeout_ms: int = wire(INT32)


@message()
class PartitionResult:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    low_watermark: int = wire(INT64)
    error_code: int = wire(INT16)


@message()
class TopicResult:
    """The outcomes for one topic."""

    name: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    """Where each log starts now."""

    throttle_time_ms: int = wire(INT32)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
