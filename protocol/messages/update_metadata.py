"""UpdateMetadata (key 6): spreads the controller's view of the cluster.

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
    """Leader and replicas of one partition."""

    topic_name: str = wire(STRING, until=4)
    partition_index: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    leader: int = wire(INT32)
    leader_epoch: int = wire(INT32)
    isr: Sequence[int] = wire(array(INT32))
    zk_version: int = wire(INT32)
    replicas: Sequence[int] = wire(array(INT32))
    offline_replicas: Sequence[int] = wire(array(INT32), since=4)


@message()
class TopicState:
    """The partitions of one topic."""

    topic_name: str = wire(STRING)
    topic_id: bytes = wire(UUID, since=7)
    partition_states: Sequence[PartitionState] = wire(array(PartitionState))


@message()
class Endpoint:
    """Where a broker listens, and how."""

    port: int = wire(INT32)
    host: str = wire(STRING)
    listener: str = wire(STRING, since=3)
    security_protocol: int = wire(INT16)


@message()
class Broker:
    """One live broker."""

    id: int = wire(INT32)
    v0_host: str = wire(STRING, until=0)
    """The only endpoint a broker had in v0."""
    v0_port: int = wire(INT32, until=0)
    endpoints: Sequence[Endpoint] = wire(array(Endpoint), since=1)
    rack: str | None = wire(STRING, since=2, null_since=0)


@message(key=6, versions=(0, 8), flexible=6)
class UpdateMetadataRequest:
    """Partitions that changed and all live brokers."""

    controller_id: int = wire(INT32)
    is_kraft_controller: bool = wire(BOOL, since=8)
    type: int = wire(INT8, since=8, tag=0)
    """1 for a change, 2 for the whole cluster."""
    offers_consumer_groups: bool = wire(BOOL, since=6, tag=1000, default=False)
    """Ours, not Kafka's: every node knows consumer groups (KIP-848), so that they may be used."""
    controller_epoch: int = wire(INT32)
    broker_epoch: int = wire(INT64, since=5, default=-1)
    ungrouped_partition_states: Sequence[PartitionState] = wire(array(PartitionState), until=4)
    topic_states: Sequence[TopicState] = wire(array(TopicState, is_encoded=True), since=5)
    live_brokers: Sequence[Broker] = wire(array(Broker, is_encoded=True))


@message(key=6, versions=(0, 8), flexible=6)
class UpdateMetadataResponse:
    """Whether the news was taken."""

    error_code: int = wire(INT16)
