"""TxnOffsetCommit (key 28): stores consumed offsets as part of a transaction.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §1.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, INT64, STRING, array, message, wire


@message()
class Partition:
    """One offset to store."""

    partition_index: int = wire(INT32)
    committed_offset: int = wire(INT64)
    committed_leader_epoch: int = wire(INT32, since=2, default=-1)
    committed_metadata: str | None = wire(STRING, null_since=0)


@message()
class Topic:
    """The offsets of one topic."""

    name: str = wire(STRING)
    partitions: Sequence[Partition] = wire(array(Partition))


@message(key=28, versions=(0, 4), advertised=4, flexible=3)
class TxnOffsetCommitRequest:
    """What was consumed inside the transaction."""

    transactional_id: str = wire(STRING)
    group_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    generation_id: int = wire(INT32, since=3, default=-1)
    member_id: str = wire(STRING, since=3)
    group_instance_id: str | None = wire(STRING, since=3, null_since=3, default=None)
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


@message(key=28, versions=(0, 4), flexible=3)
class TxnOffsetCommitResponse:
    """A code for each partition."""

    throttle_time_ms: int = wire(INT32)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
