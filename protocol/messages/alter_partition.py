"""AlterPartition (key 56): proposes in-sync replicas to the controller.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §3.6; our leaders write them to ZooKeeper
instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    message,
    wire,
)


@message()
class BrokerState:
    """One replica proposed, with the epoch of its broker."""

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)


@message()
class Partition:
    """The proposal for one partition."""

    partition_index: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    new_isr: Sequence[int] = wire(array(INT32), until=2)
    new_isr_with_epochs: Sequence[BrokerState] = wire(array(BrokerState), since=3)
    leader_recovery_state: int = wire(INT8, since=1)
    partition_epoch: int = wire(INT32)


@message()
class Topic:
    """The partitions of one topic."""

    topic_name: str = wire(STRING, until=1)
    topic_id: bytes = wire(UUID, since=2)
    partitions: Sequence[Partition] = wire(array(Partition))


@message(key=56, versions=(0, 3), flexible=0)
class AlterPartitionRequest:
    """What a leader wants its in-sync replicas to be."""

    broker_id: int = wire(INT32)
    broker_epoch: int = wire(INT64, default=-1)
    topics: Sequence[Topic] = wire(array(Topic))


@message()
class PartitionResult:
    """The state of one partition."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    leader_id: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: Sequence[int] = wire(array(INT32))
    leader_recovery_state: int = wire(INT8, since=1)
    partition_epoch: int = wire(INT32)


@message()
class TopicResult:
    """The outcomes for one topic."""

    topic_name: str = wire(STRING, until=1)
    topic_id: bytes = wire(UUID, since=2)
    partitions: Sequence[PartitionResult] = wire(array(PartitionResult))


@message(key=56, versions=(0, 3), flexible=0)
class AlterPartitionResponse:
    """What they are."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
