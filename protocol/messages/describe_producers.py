"""DescribeProducers (key 61): shows who writes to partitions.

Source: docs/spec/protocol.md §2; KIP-664.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, array, message, wire


@message()
class Topic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(array(INT32))


@message(key=61, versions=(0, 0), advertised=0, flexible=0)
class DescribeProducersRequest:
    """The partitions to look at."""

    topics: Sequence[Topic] = wire(array(Topic))


@message()
class Producer:
    """One producer, as the log remembers it."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT32)
    last_sequence: int = wire(INT32, default=-1)
    last_timestamp: int = wire(INT64, default=-1)
    coordinator_epoch: int = wire(INT32)
    current_txn_start_offset: int = wire(INT64, default=-1)


@message()
class PartitionResult:
    """The producers of one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0, default=None)
    active_producers: Sequence[Producer] = wire(array(Producer))


@message()
class TopicResult:
    """The producers of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=61, versions=(0, 0), advertised=0, flexible=0)
class DescribeProducersResponse:
    """The producers found."""

    throttle_time_ms: int = wire(INT32)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
