"""The 61 bytes in front of every record batch of magic 2.

     0 base offset int64       8 batch length int32     12 partition leader epoch int32
    16 magic int8             17 CRC-32C uint32         21 attributes int16
    23 last offset delta i32  27 base timestamp int64   35 max timestamp int64
    43 producer id int64      51 producer epoch int16   53 base sequence int32
    57 records count int32    61 records

The checksum covers byte 21 to the end: a leader may patch base offset and leader epoch, and
nothing else, without computing it again. Source: docs/spec/log.md §1.4.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
ENVELOPE_BYTES: Final = 12
"""Offset and size, which stand before every entry and are not counted in its size."""
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
MAX_TIMESTAMP_AT: Final = 35

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

SEQUENCE_MASK: Final = 0x7FFFFFFF
NO_TIMESTAMP: Final = -1
INT64_MIN: Final = -1 << 63
INT64_MAX: Final = (1 << 63) - 1


class Header(NamedTuple):
    """A batch header in the order of its bytes."""

    base_offset: int
    length: int
    """Bytes after this field; the whole batch is 12 more."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    """The delete horizon when bit 6 of the attributes is set; -1 in an empty batch."""
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """Kept by compaction, so no record need have it."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """-1 when the batch has no sequence."""
        return sequence_after(self.base_sequence, self.last_offset_delta)

    @property
    def append_time(self) -> int | None:
        """The time of every record when the broker set it; None when each has its own."""
        return self.max_timestamp if self.attributes & LOG_APPEND_TIME else None


def sequence_after(base_sequence: int, delta: int) -> int:
    """The sequence ``delta`` records on, where 0 follows 2147483647; -1 stays -1."""
    return -1 if base_sequence < 0 else base_sequence + delta & SEQUENCE_MASK
