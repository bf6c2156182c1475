"""Produce (key 0): appends records to partitions.

Source: docs/spec/protocol.md §2; docs/spec/log.md §1.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    Buffer,
    array,
    message,
    nested,
    wire,
)


@message()
class Partition:
    """The batches for one partition."""

    index: int = wire(INT32)
    records: Buffer | None = wire(RECORDS, null_since=0)


@message()
class Topic:
    """The batches for one topic."""

    name: str = wire(STRING)
    partition_data: Sequence[Partition] = wire(array(Partition))


@message(key=0, versions=(0, 11), advertised=11, flexible=9, elements_max=100_000)
class ProduceRequest:
    """The batches of one producer, by topic and partition."""

    transactional_id: str | None = wire(STRING, since=3, null_since=3, default=None)
    """None outside a transaction."""
    acks: int = wire(INT16)
    """0: send no answer; 1: the leader's log has it; -1: every in-sync replica has it."""
    timeout_ms: int = wire(INT32)
    topic_data: Sequence[Topic] = wire(array(Topic))


@message()
class RecordError:
    """Why one record made its whole batch fail."""

    batch_index: int = wire(INT32)
    batch_index_error_message: str | None = wire(STRING, null_since=0, default=None)


@message()
class CurrentLeader:
    """Whom to ask instead, with NOT_LEADER_OR_FOLLOWER."""

    leader_id: int = wire(INT32, default=-1)
    leader_epoch: int = wire(INT32, default=-1)


@message()
class PartitionResult:
    """How one append ended."""

    index: int = wire(INT32)
    error_code: int = wire(INT16)
    base_offset: int = wire(INT64)
    """Offset of the first record; -1 after an error."""
    log_append_time_ms: int = wire(INT64, since=2, default=-1)
    """-1 unless the topic stamps records with the time of append."""
    log_start_offset: int = wire(INT64, since=5, default=-1)
    record_errors: Sequence[RecordError] = wire(array(RecordError), since=8)
    error_message: str | None = wire(STRING, since=8, null_since=8, default=None)
    current_leader: CurrentLeader | None = wire(
        nested(CurrentLeader), since=10, tag=0, default=None
    )


@message()
class TopicResult:
    """How the appends to one topic ended."""

    name: str = wire(STRING)
    partition_responses: Sequence[PartitionResult] = wire(array(PartitionResult))


@message()
class NodeEndpoint:
    """The address of a leader named in this answer."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, null_since=0, default=None)


@message(key=0, versions=(0, 11), flexible=9)
class ProduceResponse:
    """Where each batch landed."""

    responses: Sequence[TopicResult] = wire(array(TopicResult))
    throttle_time_ms: int = wire(INT32, since=1)
    node_endpoints: Sequence[NodeEndpoint] = wire(array(NodeEndpoint), since=10, tag=0)
