"""WriteTxnMarkers (key 27): writes the end of transactions into partitions.

Source: docs/spec/protocol.md §2; KIP-98.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT16, INT32, INT64, STRING, array, message, wire


@message()
class Topic:
    """The partitions of one topic."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(array(INT32))


@message()
class Marker:
    """The end of one producer's transaction."""

    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    transaction_result: bool = wire(BOOL)
    topics: Sequence[Topic] = wire(array(Topic))
    coordinator_epoch: int = wire(INT32)


@message(key=27, versions=(0, 1), advertised=1, flexible=1)
class WriteTxnMarkersRequest:
    """The markers to write."""

    markers: Sequence[Marker] = wire(array(Marker))


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


@message()
class MarkerResult:
    """The outcomes of one marker."""

    producer_id: int = wire(INT64)
    topics: Sequence[TopicResult] = wire(array(TopicResult))


@message(key=27, versions=(0, 1), flexible=1)
class WriteTxnMarkersResponse:
    """The outcome of each marker."""

    markers: Sequence[MarkerResult] = wire(array(MarkerResult))
