"""LeaderAndIsr (key 4): tells a broker which partitions it leads or follows.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.4 and §2.14.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import (
    BOOL,
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
class PartitionState:
    """Leader, epochs and replicas of one partition."""

    topic_name: str = wire(STRING, until=1)
    partition_index: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    leader: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: Sequence[int] = wire(array(INT32))
    partition_epoch: int = wire(INT32)
    replicas: Sequence[int] = wire(array(INT32))
    adding_replicas: Sequence[int] = wire(array(INT32), since=3)
    removing_replicas: Sequence[int] = wire(array(INT32), since=3)
    is_new: bool = wire(BOOL, since=1)
    leader_recovery_state: int = wire(INT8, since=6)


@message()
class TopicState:
    """The partitions of one topic."""

    topic_name: str = wire(STRING)
    topic_id: bytes = wire(UUID, since=5)
    partition_states: Sequence[PartitionState] = wire(array(PartitionState))


@message()
class LiveLeader:
    """The address of a broker that leads some partition."""

    broker_id: int = wire(INT32)
    host_name: str = wire(STRING)
    port: int = wire(INT32)


@message(key=4, versions=(0, 7), flexible=4)
class LeaderAndIsrRequest:
    """The controller's word on the partitions that this broker hosts."""

    controller_id: int = wire(INT32)
    is_kraft_controller: bool = wire(BOOL, since=7)
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64, since=2, default=-1)
    """The creation transaction of the broker's znode; -1 when not known."""
    type: int = wire(INT8, since=5)
    """0 when not said, 1 for a change, 2 for all that the broker hosts."""
    ungrouped_partition_states: Sequence[PartitionState] = wire(array(PartitionState), until=1)
    """Up to v1, with the topic's name in each."""
    topic_states: Sequence[TopicState] = wire(array(TopicState), since=2)
    live_leaders: Sequence[LiveLeader] = wire(array(LiveLeader))


@message()
class PartitionError:
    """The outcome for one partition."""

    topic_name: str = wire(STRING, until=4)
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message()
class TopicError:
    """The outcomes for one topic, from v5."""

    topic_id: bytes = wire(UUID)
    partition_errors: Sequence[PartitionError] = wire(array(PartitionError))


@message(key=4, versions=(0, 7), flexible=4)
class LeaderAndIsrResponse:
    """Which partitions could not follow the word."""

    error_code: int = wire(INT16)
    partition_errors: Sequence[PartitionError] = wire(array(PartitionError), until=4)
    topics: Sequence[TopicError] = wire(array(TopicError), since=5)
