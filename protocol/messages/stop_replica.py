"""StopReplica (key 5): takes partitions away from a broker.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.4 and §2.14.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT16, INT32, INT64, STRING, array, message, wire


@message()
class Partition:
    """One replica to stop, in v0."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


@message()
class Topic:
    """The replicas of one topic to stop, in v1 and v2."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(array(INT32))


@message()
class PartitionState:
    """One replica, its own leader epoch and its own fate."""

    partition_index: int = wire(INT32)
    leader_epoch: int = wire(INT32, default=-1)
    delete_partition: bool = wire(BOOL)


@message()
class TopicState:
    """The replicas of one topic to stop, from v3."""

    topic_name: str = wire(STRING)
    partition_states: Sequence[PartitionState] = wire(array(PartitionState))


@message(key=5, versions=(0, 4), flexible=2)
class StopReplicaRequest:
    """The replicas to stop, and whether to delete their logs."""

    controller_id: int = wire(INT32)
    is_kraft_controller: bool = wire(BOOL, since=4)
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64, since=1, default=-1)
    delete_partitions: bool = wire(BOOL, until=2)
    ungrouped_partitions: Sequence[Partition] = wire(array(Partition), until=0)
    topics: Sequence[Topic] = wire(array(Topic), since=1, until=2)
    topic_states: Sequence[TopicState] = wire(array(TopicState), since=3)


@message()
class PartitionError:
    """The outcome for one replica."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message(key=5, versions=(0, 4), flexible=2)
class StopReplicaResponse:
    """The outcome for each replica."""

    error_code: int = wire(INT16)
    partition_errors: Sequence[PartitionError] = wire(array(PartitionError))
