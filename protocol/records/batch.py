"""Entries of a log, read where they lie: header fields, checksum, records.

An entry is a batch of magic 2 or a message of magic 0 or 1; each begins with an int64 offset and
an int32 count of the bytes after it, and has its magic at byte 16:

    0 offset int64   8 size int32   12 ...   16 magic int8

Every function takes a buffer and the position of an entry in it, whole unless said otherwise.
Source: docs/spec/log.md §1.1 to §1.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from crc32c import crc32c

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.compression.codecs import READ_BYTES_MAX, decompress

from . import message_set
from .builder import (
    build_batch,
    build_batch_in_rows,
    build_batch_of,
    build_single,
    encode_record,
    reseal,
)
from .corrupt_records import CorruptRecords
from .header import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    ENVELOPE_BYTES,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
    Header,
    sequence_after,
)
from .record import Record, decode_records
from .work_limit import RECORD_STEPS, Work

__all__ = [
    "HEADER",
    "HEADER_BYTES",
    "Buffer",
    "CorruptRecords",
    "Header",
    "Record",
    "assign",
    "attributes",
    "base_offset",
    "base_sequence",
    "build_batch",
    "build_batch_in_rows",
    "build_batch_of",
    "build_single",
    "codec",
    "crc_is_valid",
    "encode_record",
    "header",
    "is_control",
    "is_transactional",
    "iterate",
    "last_offset",
    "last_sequence",
    "leader_epoch",
    "magic",
    "max_timestamp",
    "next_offset",
    "producer_epoch",
    "producer_id",
    "record_count",
    "records",
    "reseal",
    "size",
    "timestamp_type",
]

Buffer = bytes | bytearray | memoryview

SIZES_MIN: Final = (*message_set.SIZES_MIN, HEADER_BYTES - ENVELOPE_BYTES)
"""What the size field of an entry says at least, by magic."""

HEADER_PAIR_BYTES: Final = 4
"""Headers of a record, of which a batch may be full, take about so much each."""

_INT64: Final = Struct(">q")
_INT32: Final = Struct(">i")
_INT16: Final = Struct(">h")


def header(buf: Buffer, pos: int = 0) -> Header:
    """All fields of a magic-2 batch at once, cheaper than three of them one by one."""
    return Header._make(HEADER.unpack_from(buf, pos))


def base_offset(buf: Buffer, pos: int = 0) -> int:
    """The first offset; of a message of magic 0 or 1 its own, of a wrapper the last."""
    return int(_INT64.unpack_from(buf, pos)[0])


def size(buf: Buffer, pos: int = 0) -> int:
    """Bytes of the whole entry; its first 12 need be there."""
    return ENVELOPE_BYTES + int(_INT32.unpack_from(buf, pos + 8)[0])


def magic(buf: Buffer, pos: int = 0) -> int:
    """0, 1 or 2; anything else (up to 255) is corrupt."""
    return buf[pos + MAGIC_AT]


def last_offset(buf: Buffer, pos: int = 0) -> int:
    """The largest offset the entry stands for, whether or not its record is still there."""
    offset = int(_INT64.unpack_from(buf, pos)[0])
    if buf[pos + MAGIC_AT] < 2:
        return offset
    return offset + int(_INT32.unpack_from(buf, pos + 23)[0])


def next_offset(buf: Buffer, pos: int = 0) -> int:
    """Where the entry after this one begins at the earliest."""
    return last_offset(buf, pos) + 1


def leader_epoch(buf: Buffer, pos: int = 0) -> int:
    """-1 before magic 2, which knows none."""
    return int(_INT32.unpack_from(buf, pos + 12)[0]) if buf[pos + MAGIC_AT] >= 2 else -1


def attributes(buf: Buffer, pos: int = 0) -> int:
    """The bits as header.py names them."""
    if buf[pos + MAGIC_AT] < 2:
        return buf[pos + 17]
    return int(_INT16.unpack_from(buf, pos + ATTRIBUTES_AT)[0])


def codec(buf: Buffer, pos: int = 0) -> int:
    """0 to 4, or 5 to 7 for what nobody has defined."""
    return attributes(buf, pos) & CODEC_MASK


def timestamp_type(buf: Buffer, pos: int = 0) -> int:
    """0 for the producer's time, 1 for the broker's, -1 in magic 0, which has none."""
    if not buf[pos + MAGIC_AT]:
        return -1
    return 1 if attributes(buf, pos) & LOG_APPEND_TIME else 0


def is_transactional(buf: Buffer, pos: int = 0) -> bool:
    """Part of a transaction, its marker included."""
    return buf[pos + MAGIC_AT] >= 2 and bool(attributes(buf, pos) & TRANSACTIONAL)


def is_control(buf: Buffer, pos: int = 0) -> bool:
    """A marker, never shown to applications."""
    return buf[pos + MAGIC_AT] >= 2 and bool(attributes(buf, pos) & CONTROL)


def max_timestamp(buf: Buffer, pos: int = 0) -> int:
    """The newest timestamp as the header has it; -1 for none."""
    version = buf[pos + MAGIC_AT]
    if not version:
        return -1
    return int(_INT64.unpack_from(buf, pos + (18 if version == 1 else MAX_TIMESTAMP_AT))[0])


def producer_id(buf: Buffer, pos: int = 0) -> int:
    """-1 for none; magic 2 only, as are the following four."""
    return int(_INT64.unpack_from(buf, pos + 43)[0])


def producer_epoch(buf: Buffer, pos: int = 0) -> int:
    """-1 for none."""
    return int(_INT16.unpack_from(buf, pos + 51)[0])


def base_sequence(buf: Buffer, pos: int = 0) -> int:
    """-1 for none."""
    return int(_INT32.unpack_from(buf, pos + 53)[0])


def last_sequence(buf: Buffer, pos: int = 0) -> int:
    """Wraps from 2147483647 to 0; -1 for none."""
    delta = int(_INT32.unpack_from(buf, pos + 23)[0])
    return sequence_after(base_sequence(buf, pos), delta)


def record_count(buf: Buffer, pos: int = 0) -> int:
    """Records present; compaction leaves fewer than there were offsets, even 0."""
    return int(_INT32.unpack_from(buf, pos + 57)[0])


def iterate(buf: Buffer, start: int = 0) -> Iterator[tuple[int, int]]:
    """Position and size of each whole entry; one that is cut at the end is left out silently.

    Raises CorruptRecords(CORRUPT_MESSAGE) at a size or magic that no entry has; checksums are
    not looked at.
    """
    end = len(buf)
    while end - start > MAGIC_AT + 1:
        length = _INT32.unpack_from(buf, start + 8)[0]
        version = buf[start + MAGIC_AT]
        if length < SIZES_MIN[0] or version > 2 or length < SIZES_MIN[version]:
            raise CorruptRecords(
                f"an entry of {length} bytes and magic {version} at {start}",
                ErrorCode.CORRUPT_MESSAGE,
            )
        length += ENVELOPE_BYTES
        if length > end - start:
            return
        yield start, length
        start += length


def crc_is_valid(buf: Buffer, pos: int, size: int) -> bool:
    """Whether the checksum of an entry of ``size`` bytes is what it says: CRC-32C, or CRC-32."""
    if buf[pos + MAGIC_AT] < 2:
        return message_set.checksum_is_valid(buf, pos, pos + size)
    stored = int.from_bytes(buf[pos + CRC_AT : pos + ATTRIBUTES_AT], "big")
    return bool(crc32c(memoryview(buf)[pos + ATTRIBUTES_AT : pos + size]) == stored)


def records(
    buf: Buffer,
    pos: int = 0,
    *,
    bytes_max: int = READ_BYTES_MAX,
    work: Work | None = None,
    record_steps: int = RECORD_STEPS,
) -> Iterator[Record]:
    """The records of one entry of any magic, decompressed, with absolute offsets and times.

    Control records come like any others. Stops with CorruptRecords at the first that cannot be
    read, or at once when the entry expands to more than ``bytes_max``. Raises TooMuchWork
    at once when all of it would take more than ``work`` has left, ``record_steps`` for a record
    of magic 2.
    """
    stop = pos + size(buf, pos)
    if buf[pos + MAGIC_AT] < 2:
        return message_set.messages(memoryview(buf)[pos:stop], bytes_max=bytes_max, work=work)
    head = header(buf, pos)
    section = bytes(memoryview(buf)[pos + HEADER_BYTES : stop])
    used = head.attributes & CODEC_MASK
    if used:
        section = decompress(used, section, bytes_max=bytes_max, work=work)
    if work is not None:
        work.take(record_steps * max(0, head.record_count) + len(section) // HEADER_PAIR_BYTES)
    return decode_records(
        section,
        0,
        count=head.record_count,
        base_offset=head.base_offset,
        base_timestamp=head.base_timestamp,
        append_time=head.append_time,
    )


def assign(batch: bytearray | memoryview, base_offset: int, leader_epoch: int) -> None:
    """Give a batch of magic 2 its place; the two fields lie outside of its checksum."""
    _INT64.pack_into(batch, 0, base_offset)
    _INT32.pack_into(batch, 12, leader_epoch)
