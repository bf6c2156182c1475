"""ConsumerGroupHeartbeat (key 68): joins, keeps and leaves a group of the consumer protocol.

Source: KIP-848, KIP-1082 (v1: regular expressions, and the client makes the member id).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, STRING, UUID, array, message, nested, wire


@message()
class TopicPartitions:
    """Partitions of one topic, which goes by its id."""

    topic_id: bytes = wire(UUID)
    partitions: Sequence[int] = wire(array(INT32))


@message(key=68, versions=(0, 1), advertised=1, flexible=0, elements_max=100_000)
class ConsumerGroupHeartbeatRequest:
    """What has changed at one member; None and -1 stand for "as last time"."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING)
    """Made by the member from v1 on; empty in v0 as long as it has none."""
    member_epoch: int = wire(INT32)
    """0 to join, -1 to leave, -2 for a static member that will be back."""
    instance_id: str | None = wire(STRING, null_since=0, default=None)
    rack_id: str | None = wire(STRING, null_since=0, default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    subscribed_topic_names: Sequence[str] | None = wire(array(STRING), null_since=0, default=None)
    subscribed_topic_regex: str | None = wire(STRING, since=1, null_since=1, default=None)
    """An expression in the syntax of RE2; empty to drop the one before."""
    server_assignor: str | None = wire(STRING, null_since=0, default=None)
    topic_partitions: Sequence[TopicPartitions] | None = wire(
        array(TopicPartitions), null_since=0, default=None
    )
    """What the member owns: None says nothing, and an empty list that it owns nothing."""


@message()
class Assignment:
    """All that a member may own now."""

    topic_partitions: Sequence[TopicPartitions] = wire(array(TopicPartitions))


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and what it is assigned where that may be new to it."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0, default=None)
    member_id: str | None = wire(STRING, null_since=0, default=None)
    member_epoch: int = wire(INT32)
    heartbeat_interval_ms: int = wire(INT32)
    assignment: Assignment | None = wire(nested(Assignment), null_since=0, default=None)
    """None leaves the member with what it has."""
