"""ElectLeaders (key 43): has leaders elected anew.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.6.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT8, INT16, INT32, STRING, array, message, wire


@message()
class TopicPartitions:
    """The partitions of one topic."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


@message(key=43, versions=(0, 2), advertised=2, flexible=2)
class ElectLeadersRequest:
    """The partitions, and which kind of election."""

    election_type: int = wire(INT8, since=1)
    """0 elects the preferred replica, 1 any that lives."""
    topic_partitions: Sequence[TopicPartitions] | None = wire(array(TopicPartitions), null_since=0)
    """None means every partition."""
    timeout_ms: int = wire(INT32, default=60000)


@message()
class PartitionResult:
    """The outcome for one partition."""

    partition_id: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)


@message()
class TopicResult:
    """The outcomes for one topic."""

    topic: str = wire(STRING)
    partition_result: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=43, versions=(0, 2), advertised=2, flexible=2)
class ElectLeadersResponse:
    """The outcome for each partition."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16, since=1)
    replica_election_results: Sequence[TopicResult] = wire(array(TopicResult))
