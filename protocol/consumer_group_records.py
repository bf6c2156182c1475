"""The records of ``__consumer_offsets`` that keep consumer groups of the new protocol (KIP-848).

::

    key    version int16 | group [, member | , regular expression]
    value  version int16, always 0 | body as declared below; unknown bytes may follow it

Strings of keys have int16 lengths; bodies are flexible, so that later releases can add tagged
fields. Offsets stay under the keys of offsets_topic.py, whatever protocol a group follows.
Source: docs/spec/consumer-groups.md §4.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.protocol.codec.compiler import decode_prefix, encode
from barnabas.protocol.codec.wire import (
    BYTES,
    INT8,
    INT32,
    INT64,
    STRING,
    UUID,
    array,
    message,
    nested,
    wire,
)

from .errors import CorruptRequest

T = TypeVar("T")

VALUE_VERSION: Final = 0
"""The only version of every value there is; a later one fails the load (KAFKA-18672)."""

_SHORT: Final = Struct(">h")
_LENGTH: Final = Struct(">H")


class RecordType(IntEnum):
    """What a record is about: the version of its key."""

    GROUP_METADATA = 3
    PARTITION_METADATA = 4
    """Written until Kafka 4.0; neither written nor read here."""
    MEMBER_METADATA = 5
    TARGET_ASSIGNMENT_METADATA = 6
    TARGET_ASSIGNMENT_MEMBER = 7
    CURRENT_MEMBER_ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


_PARTS: Final = {
    RecordType.GROUP_METADATA: 1,
    RecordType.PARTITION_METADATA: 1,
    RecordType.MEMBER_METADATA: 2,
    RecordType.TARGET_ASSIGNMENT_METADATA: 1,
    RecordType.TARGET_ASSIGNMENT_MEMBER: 2,
    RecordType.CURRENT_MEMBER_ASSIGNMENT: 2,
    RecordType.REGULAR_EXPRESSION: 2,
}
"""How many strings a key of this type has: the group, and a member id or an expression."""


class ConsumerGroupKey(NamedTuple):
    """The key of one record; ``name`` is a member id or an expression, or empty."""

    type: RecordType
    group: str
    name: str = ""


@message(versions=(0, 0), flexible=0)
class GroupMetadata:
    """A group: its epoch, and the hash of the topics that it subscribes to (KIP-1101)."""

    epoch: int = wire(INT32)
    metadata_hash: int = wire(INT64, tag=0)


@message()
class ClassicProtocol:
    """One assignment protocol of a member that still speaks the classic protocol."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@message()
class ClassicMemberMetadata:
    """What only a member of the classic protocol has."""

    session_timeout_ms: int = wire(INT32)
    supported_protocols: Sequence[ClassicProtocol] = wire(array(ClassicProtocol))


@message(versions=(0, 0), flexible=0)
class MemberMetadata:
    """A member and its subscription."""

    instance_id: str | None = wire(STRING, null_since=0, default=None)
    rack_id: str | None = wire(STRING, null_since=0, default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    subscribed_topic_names: Sequence[str] = wire(array(STRING))
    subscribed_topic_regex: str | None = wire(STRING, null_since=0, default=None)
    rebalance_timeout_ms: int = wire(INT32, default=-1)
    server_assignor: str | None = wire(STRING, null_since=0, default=None)
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        nested(ClassicMemberMetadata), null_since=0, tag=0, default=None
    )


@message(versions=(0, 0), flexible=0)
class TargetAssignmentMetadata:
    """The epoch that the target assignment belongs to, and when it was computed."""

    assignment_epoch: int = wire(INT32)
    assignment_timestamp: int = wire(INT64, tag=0)
    """Milliseconds of wall time; 0 for none (since Kafka 4.3)."""


@message()
class TopicPartitions:
    """Partitions of one topic."""

    topic_id: bytes = wire(UUID)
    partitions: Sequence[int] = wire(array(INT32))


@message(versions=(0, 0), flexible=0)
class TargetAssignmentMember:
    """What one member is to have in the end."""

    topic_partitions: Sequence[TopicPartitions] = wire(array(TopicPartitions))


@message()
class AssignedTopicPartitions:
    """Partitions of one topic that a member holds."""

    topic_id: bytes = wire(UUID)
    partitions: Sequence[int] = wire(array(INT32))
    assignment_epochs: Sequence[int] | None = wire(array(INT32), null_since=0, tag=0, default=None)
    """The member epoch at which each partition was assigned (KIP-1251); older records lack it."""


@message(versions=(0, 0), flexible=0)
class CurrentMemberAssignment:
    """What a member holds, and what it has been told to give up."""

    member_epoch: int = wire(INT32)
    previous_member_epoch: int = wire(INT32)
    state: int = wire(INT8)
    assigned_partitions: Sequence[AssignedTopicPartitions] = wire(array(AssignedTopicPartitions))
    partitions_pending_revocation: Sequence[AssignedTopicPartitions] = wire(
        array(AssignedTopicPartitions)
    )


@message(versions=(0, 0), flexible=0)
class RegularExpression:
    """The topics that an expression stood for when it was resolved last."""

    topics: Sequence[str] = wire(array(STRING))
    version: int = wire(INT64)
    """Of the metadata that it was resolved with."""
    timestamp: int = wire(INT64)


def consumer_group_key(record_type: RecordType, group: str, name: str = "") -> bytes:
    """The key under which a record is written; ``name`` is a member id or an expression."""
    parts = (group, name)[: _PARTS[record_type]]
    return _SHORT.pack(record_type) + b"".join(map(_string, parts))


def parse_consumer_group_key(key: bytes) -> ConsumerGroupKey | None:
    """What a record is about; None for a key of another kind, known elsewhere or to nobody.

    Raises CorruptRequest for bytes that are cut short.
    """
    try:
        (version,) = _SHORT.unpack_from(key)
        if version not in _PARTS:
            return None
        record_type = RecordType(version)
        parts, position = [], _SHORT.size
        for _ in range(_PARTS[record_type]):
            text, position = _read_string(key, position)
            parts.append(text)
    except (struct_error, UnicodeDecodeError) as error:
        raise CorruptRequest(f"key of a consumer group's record: {error}") from error
    return ConsumerGroupKey(record_type, *parts)


def consumer_group_value(value: Any) -> bytes:
    """A value as it is written; ``value`` is one of the messages declared here."""
    return _SHORT.pack(VALUE_VERSION) + encode(value, VALUE_VERSION)


def parse_consumer_group_value(message_class: type[T], value: bytes) -> T:
    """Read a value. Raises CorruptRequest where it is cut short, or of a later version."""
    if len(value) < _SHORT.size or _SHORT.unpack_from(value)[0] != VALUE_VERSION:
        raise CorruptRequest(f"{message_class.__name__}: {value[:2]!r} is no version 0")
    return decode_prefix(message_class, VALUE_VERSION, value, _SHORT.size)[0]


def _string(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _read_string(key: bytes, position: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(key, position)
    start, end = position + _LENGTH.size, position + _LENGTH.size + length
    if end > len(key):
        raise CorruptRequest("key of a consumer group's record is cut short")
    return key[start:end].decode(), end
