"""Metadata (key 3): describes brokers, topics and leaders to clients.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT16, INT32, STRING, UUID, array, message, wire


@message()
class Topic:
    """One topic, by name or from v10 by id."""

    topic_id: bytes = wire(UUID, since=10)
    name: str | None = wire(STRING, null_since=10)


@message(key=3, versions=(0, 12), advertised=12, flexible=9)
class MetadataRequest:
    """Which topics to describe."""

    topics: Sequence[Topic] | None = wire(array(Topic), null_since=1)
    """None asks for all topics; in v0 an empty list does."""
    allow_auto_topic_creation: bool = wire(BOOL, since=4, default=True)
    include_cluster_authorized_operations: bool = wire(BOOL, since=8, until=10)
    include_topic_authorized_operations: bool = wire(BOOL, since=8)


@message()
class Broker:
    """One live broker, as seen from the listener that was asked."""

    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    rack: str | None = wire(STRING, since=1, null_since=1, default=None)


@message()
class Partition:
    """One partition: its leader and replicas."""

    error_code: int = wire(INT16)
    partition_index: int = wire(INT32)
    leader_id: int = wire(INT32)
    """-1 when there is none."""
    leader_epoch: int = wire(INT32, since=7, default=-1)
    replica_nodes: Sequence[int] = wire(array(INT32))
    isr_nodes: Sequence[int] = wire(array(INT32))
    offline_replicas: Sequence[int] = wire(array(INT32), since=5)


@message()
class TopicResult:
    """One topic and its partitions."""

    error_code: int = wire(INT16)
    name: str | None = wire(STRING, null_since=12)
    topic_id: bytes = wire(UUID, since=10)
    is_internal: bool = wire(BOOL, since=1)
    partitions: Sequence[Partition] = wire(array(Partition))
    topic_authorized_operations: int = wire(INT32, since=8, default=-2147483648)


@message(key=3, versions=(0, 12), flexible=9)
class MetadataResponse:
    """The cluster as this broker knows it."""

    throttle_time_ms: int = wire(INT32, since=3)
    brokers: Sequence[Broker] = wire(array(Broker))
    cluster_id: str | None = wire(STRING, since=2, null_since=2, default=None)
    controller_id: int = wire(INT32, since=1, default=-1)
    """-1 when no controller is known."""
    topics: Sequence[TopicResult] = wire(array(TopicResult, is_encoded=True))
    cluster_authorized_operations: int = wire(INT32, since=8, until=10, default=-2147483648)
