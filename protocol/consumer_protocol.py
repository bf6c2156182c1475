"""What group members tell each other through the broker: subscriptions and assignments.

::

    version int16 | body of that version; a newer writer may have put more behind it

Source: docs/spec/coordinator.md §2.4 (ConsumerProtocol bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from barnabas.protocol.codec.compiler import decode_prefix, encode
from barnabas.protocol.codec.wire import BYTES, INT32, STRING, array, message, wire

from .errors import CorruptRequest

T = TypeVar("T")

NEWEST: Final = 3
"""The newest version there is; a yet newer one is read as if it were this one."""


@message()
class TopicPartitions:
    """Partitions of one topic."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(array(INT32))


@message(versions=(0, NEWEST))
class Subscription:
    """What a member wants to consume, and what it holds already."""

    topics: Sequence[str] = wire(array(STRING))
    user_data: bytes | None = wire(BYTES, null_since=0, default=None)
    owned_partitions: Sequence[TopicPartitions] = wire(array(TopicPartitions), since=1)
    generation_id: int = wire(INT32, since=2, default=-1)
    rack_id: str | None = wire(STRING, since=3, null_since=3, default=None)


@message(versions=(0, NEWEST))
class Assignment:
    """What a member is to consume."""

    assigned_partitions: Sequence[TopicPartitions] = wire(array(TopicPartitions))
    user_data: bytes | None = wire(BYTES, null_since=0, default=None)


def build_subscription(subscription: Subscription, version: int = 0) -> bytes:
    """The bytes a member sends when it joins."""
    return version.to_bytes(2, "big") + encode(subscription, version)


def build_assignment(assignment: Assignment, version: int = 0) -> bytes:
    """The bytes a group's leader sends for one member."""
    return version.to_bytes(2, "big") + encode(assignment, version)


def parse_subscription(data: bytes) -> Subscription:
    """Read a subscription; raises CorruptRequest."""
    return _parse(Subscription, data)


def parse_assignment(data: bytes) -> Assignment:
    """Read an assignment; nothing at all means no partitions. Raises CorruptRequest."""
    return _parse(Assignment, data) if data else Assignment()


def subscribed_topics(data: bytes) -> list[str] | None:
    """The topics of a subscription; None when the bytes are no subscription of a consumer."""
    try:
        return list(parse_subscription(data).topics)
    except CorruptRequest:
        return None


def _parse(message_class: type[T], data: bytes) -> T:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise CorruptRequest(f"{message_class.__name__} of {len(data)} bytes, version {version}")
    return decode_prefix(message_class, min(version, NEWEST), data, 2)[0]
