"""Messages of magic 0 and 1: what clients and brokers before 0.11 wrote.

     0 offset int64    8 size int32   12 CRC-32 uint32   16 magic int8   17 attributes int8
    18 [timestamp int64, magic 1]     .. key length int32 | key | value length int32 | value

The checksum covers byte 16 to the end. A compressed set is one wrapper message without a key
whose value is a compressed set of the same magic. Its own offset is that of the last message;
the inner ones hold offsets in magic 0 and, in magic 1, distances.
Source: docs/spec/log.md §1.2 and §1.3.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.compression.codecs import READ_BYTES_MAX, compress, decompress

from .corrupt_records import CorruptRecords
from .header import CODEC_MASK, ENVELOPE_BYTES, LOG_APPEND_TIME, NO_TIMESTAMP
from .record import Record
from .work_limit import RECORD_STEPS, Work

SIZES_MIN: Final = (14, 22)
"""What the size field of an entry says at least, by magic."""

_ENVELOPE: Final = Struct(">qiIbb")
_TIMESTAMP: Final = Struct(">q")
_LENGTH: Final = Struct(">i")
_FRONT: Final = (Struct(">bb"), Struct(">bbq"))
_NULL: Final = _LENGTH.pack(-1)

Buffer = bytes | bytearray | memoryview


def messages(
    entry: Buffer,
    *,
    bytes_max: int = READ_BYTES_MAX,
    verify: bool = False,
    work: Work | None = None,
) -> Iterator[Record]:
    """The messages of one whole entry, a wrapper unpacked, with absolute offsets.

    ``verify`` also checks the checksums inside a wrapper, as a leader must on
    produce; the entry's own is the caller's business. A wrapper at offset 0 was not numbered
    by a broker and counts from 0. Raises CorruptRecords, and TooMuchWork when it takes more than
    ``work`` has left.
    """
    if work is not None:
        work.take(RECORD_STEPS)
    data = bytes(entry)
    outer = _message(data, 0, len(data))
    codec = data[17] & CODEC_MASK
    if not codec:
        return iter((outer,))
    return iter(_unwrapped(data, outer, codec, bytes_max, verify, work))


def _unwrapped(
    data: bytes, wrapper: Record, codec: int, bytes_max: int, verify: bool, work: Work | None
) -> list[Record]:
    """The inner messages of a wrapper; they all are read before the first has an offset."""
    magic, attributes = data[16], data[17]
    if wrapper.value is None:
        raise CorruptRecords("a wrapper without a value")
    plain = decompress(codec, wrapper.value, bytes_max=bytes_max, magic=magic, work=work)
    inner = list(_inner(plain, magic, verify, work))
    if not inner:
        raise CorruptRecords("a wrapper without messages")
    base = 0
    if magic == 1 and wrapper.offset:
        base = wrapper.offset - inner[-1].offset
        if base < 0:
            raise CorruptRecords(f"a wrapper at {wrapper.offset} around {inner[-1].offset}")
    append_time = wrapper.timestamp if magic == 1 and attributes & LOG_APPEND_TIME else None
    if base or append_time is not None:
        return [
            Record(base + offset, time if append_time is None else append_time, key, value)
            for offset, time, key, value, _ in inner
        ]
    return inner


def _inner(plain: bytes, magic: int, verify: bool, work: Work | None) -> Iterator[Record]:
    """The messages of a decompressed set; one that is cut at the end is left out silently."""
    position, end = 0, len(plain)
    while end - position >= ENVELOPE_BYTES:
        (size,) = _LENGTH.unpack_from(plain, position + 8)
        stop = position + ENVELOPE_BYTES + size
        if size < SIZES_MIN[0]:
            raise CorruptRecords(f"a message of {size} bytes", ErrorCode.CORRUPT_MESSAGE)
        if stop > end:
            return
        if plain[position + 16] != magic:
            raise CorruptRecords(f"magic {plain[position + 16]} inside of magic {magic}")
        if plain[position + 17] & CODEC_MASK:
            raise CorruptRecords("a wrapper inside of a wrapper")
        if verify and not checksum_is_valid(plain, position, stop):
            raise CorruptRecords("checksum of an inner message", ErrorCode.CORRUPT_MESSAGE)
        if work is not None:
            work.take(RECORD_STEPS)
        yield _message(plain, position, stop)
        position = stop


def checksums(entry: Buffer, *, bytes_max: int = READ_BYTES_MAX) -> list[tuple[int, bool]]:
    """The checksum of each message of one whole entry, and whether it is right.

    Those inside of a wrapper, in the order of :func:`messages`, or else the entry's own.
    Raises CorruptRecords.
    """
    data = bytes(entry)
    codec = data[17] & CODEC_MASK
    if codec:
        value = _message(data, 0, len(data)).value
        data = decompress(codec, value or b"", bytes_max=bytes_max, magic=data[16])
    found, position = [], 0
    while len(data) - position >= ENVELOPE_BYTES:
        stop = position + ENVELOPE_BYTES + _LENGTH.unpack_from(data, position + 8)[0]
        if not position + SIZES_MIN[0] <= stop <= len(data):
            break
        crc = int.from_bytes(data[position + 12 : position + 16], "big")
        found.append((crc, checksum_is_valid(data, position, stop)))
        position = stop
    return found


def checksum_is_valid(data: Buffer, position: int, stop: int) -> bool:
    """Whether the CRC-32 of the entry from ``position`` to ``stop`` is what it says."""
    stored = int.from_bytes(data[position + 12 : position + 16], "big")
    return zlib.crc32(memoryview(data)[position + 16 : stop]) == stored


def _message(data: bytes, position: int, stop: int) -> Record:
    """One message as it stands, offset and timestamp uninterpreted."""
    offset, _, _, magic, _ = _ENVELOPE.unpack_from(data, position)
    if stop - position - ENVELOPE_BYTES < SIZES_MIN[magic]:
        raise CorruptRecords("a message below its least size", ErrorCode.CORRUPT_MESSAGE)
    timestamp = NO_TIMESTAMP
    position += 18
    if magic:
        (timestamp,) = _TIMESTAMP.unpack_from(data, position)
        position += 8
    key, position = _field(data, position, stop)
    value, position = _field(data, position, stop)
    if position != stop:
        raise CorruptRecords(f"a message ends at {position}, not at {stop}")
    return Record(offset, timestamp, key, value)


def _field(data: bytes, position: int, stop: int) -> tuple[bytes | None, int]:
    if stop - position < 4:
        raise CorruptRecords("a message ends within a length")
    (length,) = _LENGTH.unpack_from(data, position)
    position += 4
    if length < 0:
        if length != -1:
            raise CorruptRecords(f"a length of {length}")
        return None, position
    if length > stop - position:
        raise CorruptRecords(f"a field of {length} bytes, {stop - position} are left")
    return data[position : position + length], position + length


def encode_message(record: Record, magic: int, attributes: int = 0) -> bytes:
    """One entry; magic 0 has no place for the timestamp, neither magic one for headers."""
    _, timestamp, key, value, _ = record
    front = _FRONT[magic].pack(magic, attributes, *((timestamp,) if magic else ()))
    body = b"".join((front, _prefixed(key), _prefixed(value)))
    return b"".join(
        (
            _TIMESTAMP.pack(record.offset),
            _LENGTH.pack(4 + len(body)),
            zlib.crc32(body).to_bytes(4, "big"),
            body,
        )
    )


def _prefixed(field: bytes | None) -> bytes:
    return _NULL if field is None else _LENGTH.pack(len(field)) + field


def encode_messages(
    records: Sequence[Record], magic: int, *, codec: int = 0, append_time: int | None = None
) -> bytes:
    """Entries one after another, or one wrapper around them all; offsets are kept.

    ``append_time`` becomes every message's timestamp, marked as the broker's; magic 0 has none.
    """
    attributes = LOG_APPEND_TIME if magic and append_time is not None else 0
    if append_time is not None:
        records = [record._replace(timestamp=append_time) for record in records]
    if not codec:
        return b"".join([encode_message(record, magic, attributes) for record in records])
    first = records[0].offset if magic else 0
    inner = b"".join(
        [
            encode_message(record._replace(offset=record.offset - first), magic, attributes)
            for record in records
        ]
    )
    payload = compress(codec, inner, magic=magic)
    newest = max(record.timestamp for record in records)
    wrapper = Record(records[-1].offset, newest, None, payload)
    return encode_message(wrapper, magic, attributes | codec)
