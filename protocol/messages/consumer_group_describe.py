"""ConsumerGroupDescribe (key 69): shows groups of the consumer protocol and their members.

Source: KIP-848, KIP-1099 (v1: the type of a member).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    array,
    message,
    nested,
    wire,
)


@message(key=69, versions=(0, 1), advertised=1, flexible=0, elements_max=100_000)
class ConsumerGroupDescribeRequest:
    """The groups to show."""

    group_ids: Sequence[str] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL)


@message()
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = wire(UUID)
    topic_name: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


@message()
class Assignment:
    """Partitions of one member."""

    topic_partitions: Sequence[TopicPartitions] = wire(array(TopicPartitions))


@message()
class Member:
    """One member of a group."""

    member_id: str = wire(STRING)
    instance_id: str | None = wire(STRING, null_since=0, default=None)
    rack_id: str | None = wire(STRING, null_since=0, default=None)
    member_epoch: int = wire(INT32)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: Sequence[str] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, null_since=0, default=None)
    assignment: Assignment = wire(nested(Assignment))
    """What it has, and what it has still to give up."""
    target_assignment: Assignment = wire(nested(Assignment))
    member_type: int = wire(INT8, since=1, default=-1)
    """0 for a member of the classic protocol, 1 of the consumer protocol, -1 where untold."""


@message()
class DescribedGroup:
    """One group, as its coordinator sees it."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0, default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    group_epoch: int = wire(INT32)
    assignment_epoch: int = wire(INT32)
    assignor_name: str = wire(STRING)
    members: Sequence[Member] = wire(array(Member))
    authorized_operations: int = wire(INT32, default=-2147483648)


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    """One description a group."""

    throttle_time_ms: int = wire(INT32)
    groups: Sequence[DescribedGroup] = wire(array(DescribedGroup))
