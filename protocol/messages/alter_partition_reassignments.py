"""AlterPartitionReassignments (key 45): gives partitions other replicas.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.12.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, STRING, array, message, wire


@message()
class Partition:
    """One partition and its replicas to be; None calls a move off."""

    partition_index: int = wire(INT32)
    replicas: Sequence[int] | None = wire(array(INT32), null_since=0, default=None)


@message()
class Topic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[Partition] = wire(array(Partition))


@message(key=45, versions=(0, 0), advertised=0, flexible=0)
class AlterPartitionReassignmentsRequest:
    """The replicas that partitions are to have."""

    timeout_ms: int = wire(INT32, default=60000)
    topics: Sequence[Topic] = wire(array(Topic))


@message()
class PartitionResult:
    """The outcome for one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)


@message()
class TopicResult:
    """The outcomes for one topic."""

    name: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=45, versions=(0, 0), advertised=0, flexible=0)
class AlterPartitionReassignmentsResponse:
    """The outcome for each partition."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    responses: Sequence[TopicResult] = wire(array(TopicResult))
