"""ListPartitionReassignments (key 46): shows reassignments under way.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.12.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, STRING, array, message, wire


@message()
class Topic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(array(INT32))


@message(key=46, versions=(0, 0), advertised=0, flexible=0)
class ListPartitionReassignmentsRequest:
    """Which partitions to show; None shows all."""

    timeout_ms: int = wire(INT32, default=60000)
    topics: Sequence[Topic] | None = wire(array(Topic), null_since=0, default=None)


@message()
class PartitionResult:
    """The replicas one partition has, gains and loses."""

    partition_index: int = wire(INT32)
    replicas: Sequence[int] = wire(array(INT32))
    adding_replicas: Sequence[int] = wire(array(INT32))
    removing_replicas: Sequence[int] = wire(array(INT32))


@message()
class TopicResult:
    """The reassignments of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=46, versions=(0, 0), advertised=0, flexible=0)
class ListPartitionReassignmentsResponse:
    """The reassignments found."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
