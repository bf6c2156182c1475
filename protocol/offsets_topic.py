"""The records of ``__consumer_offsets``, which Kafka and every tool around it can read.

::

    key    version int16 | 0, 1: group, topic, partition int32 | 2: group
    value  version int16 | body as declared below; unknown bytes may follow it

Strings have int16 lengths, except in the flexible value version 4.
Source: docs/spec/coordinator.md §2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas.protocol.codec.compiler import decode_prefix, encode
from barnabas.protocol.codec.wire import BYTES, INT32, INT64, STRING, array, message, wire

from .errors import CorruptRequest

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2

_SHORT: Final = Struct(">h").pack
_TWO_SHORTS: Final = Struct(">hh").pack
_INT: Final = Struct(">i").pack
_LONG: Final = Struct(">q").pack
_KEY_START: Final = Struct(">hH").unpack_from
_KEY_LENGTH: Final = Struct(">H").unpack_from
_KEY_PARTITION: Final = Struct(">i").unpack_from
_VALUE_3: Final = Struct(">hqih").pack
_VALUE_3_EMPTY: Final = Struct(">hqihq").pack
_VALUE_1: Final = Struct(">hqh").pack
_TWO_LONGS: Final = Struct(">qq").pack


OFFSET_AT: Final = 2
"""Where the value of versions 1 and 3 has its offset, int64."""
EPOCH_AT: Final = 10
"""Where version 3 has its leader epoch, int32."""
METADATA_AT: Final = {1: 12, 3: 16}
"""Where the text begins, by version."""


class OffsetKey(NamedTuple):
    """The key of a committed offset; versions 0 and 1 are different keys to compaction."""

    version: int
    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The key of a group's metadata."""

    group: str


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key of a version made later than this code: to be skipped, not an error."""

    version: int


@message(versions=(0, 4), flexible=4)
class OffsetRecord:
    """A committed offset; -1 for an epoch or an expiry that was not given."""

    offset: int = wire(INT64)
    leader_epoch: int = wire(INT32, since=3, default=-1)
    metadata: str = wire(STRING)
    commit_timestamp: int = wire(INT64)
    expire_timestamp: int = wire(INT64, since=1, until=1, default=-1)


@message()
class MemberRecord:
    """One member of a stored group; ``subscription`` is that for the protocol selected."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, null_since=3, default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    rebalance_timeout: int = wire(INT32, since=1, default=-1)
    """Milliseconds; records of version 0 have none and take the session timeout."""
    session_timeout: int = wire(INT32)
    subscription: bytes = wire(BYTES)
    assignment: bytes = wire(BYTES)


@message(versions=(0, 4), flexible=4)
class GroupRecord:
    """A stored group; without members it is Empty, else Stable."""

    protocol_type: str = wire(STRING)
    generation: int = wire(INT32)
    protocol: str | None = wire(STRING, null_since=0, default=None)
    leader: str | None = wire(STRING, null_since=0, default=None)
    current_state_timestamp: int = wire(INT64, since=2, default=-1)
    members: Sequence[MemberRecord] = wire(array(MemberRecord))


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key under which an offset is written (version 1)."""
    return _offset_key_start(group, topic) + _INT(partition)


def old_offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key under which brokers of 0.8.2 wrote an offset (version 0), to delete theirs too."""
    return b"\0\0" + offset_key(group, topic, partition)[2:]


def group_key(group: str) -> bytes:
    """The key under which a group is written (version 2)."""
    name = group.encode()
    return _TWO_SHORTS(GROUP_KEY_VERSION, len(name)) + name


def offset_value(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp: int,
    expire_timestamp: int | None = None,
) -> bytes:
    """A committed offset: version 1 when it has its own expiry, which has no epoch, else 3."""
    if expire_timestamp is not None:
        text = metadata.encode()
        times = _TWO_LONGS(commit_timestamp, expire_timestamp)
        return _VALUE_1(1, offset, len(text)) + text + times
    if not metadata:
        return _VALUE_3_EMPTY(3, offset, leader_epoch, 0, commit_timestamp)
    text = metadata.encode()
    return _VALUE_3(3, offset, leader_epoch, len(text)) + text + _LONG(commit_timestamp)


def group_value(group: GroupRecord) -> bytes:
    """A group as it is written (version 3)."""
    return _SHORT(3) + encode(group, 3)


def parse_key(key: bytes) -> OffsetKey | GroupKey | UnknownKey:
    """What a record is about. Raises CorruptRequest for bytes that are cut short."""
    try:
        version, length = _KEY_START(key)
        if version > GROUP_KEY_VERSION or version < 0:
            return UnknownKey(version)
        end = 4 + length
        group = key[4:end].decode()
        if version == GROUP_KEY_VERSION:
            if end > len(key):
                raise CorruptRequest("group key cut short")
            return GroupKey(group)
        (length,) = _KEY_LENGTH(key, end)
        start, end = end + 2, end + 2 + length
        (partition,) = _KEY_PARTITION(key, end)
        return tuple.__new__(OffsetKey, (version, group, key[start:end].decode(), partition))
    except (struct_error, UnicodeDecodeError) as error:
        raise CorruptRequest(f"key of an offsets record: {error}") from error


def parse_offset_value(value: bytes) -> OffsetRecord:
    """Read a committed offset of any version. Raises CorruptRequest."""
    return decode_prefix(OffsetRecord, _version(value), value, 2)[0]


def parse_group_value(value: bytes) -> GroupRecord:
    """Read a group of any version. Raises CorruptRequest."""
    version = _version(value)
    group = decode_prefix(GroupRecord, version, value, 2)[0]
    if version == 0:
        for member in group.members:
            member.rebalance_timeout = member.session_timeout
    return group


@lru_cache(maxsize=16_384)
def _offset_key_start(group: str, topic: str) -> bytes:
    name, other = group.encode(), topic.encode()
    start = _TWO_SHORTS(OFFSET_KEY_VERSION, len(name))
    return start + name + _SHORT(len(other)) + other


def _version(value: bytes) -> int:
    version = int.from_bytes(value[:2], "big", signed=True)
    if len(value) < 2 or not 0 <= version <= 4:
        raise CorruptRequest(f"offsets value of version {version}, {len(value)} bytes")
    return version
