"""Record batches of magic 2, built in one go.

Two ways in: :func:`build_batch` for pairs of key and value that share one timestamp (the offsets
journal, thousands of times a second), :func:`build_batch_of` for records with everything.
Source: docs/spec/log.md §1.4 and §1.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Final

from crc32c import crc32c

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.compression.codecs import compress

from .corrupt_records import CorruptRecords
from .header import (
    CONTROL,
    CRC_AT,
    HEADER_BYTES,
    INT64_MAX,
    INT64_MIN,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
)
from .record import HeaderPair, Record
from .record_rows import RecordRows
from .varints import SMALL, SMALL_COUNT, encode_varint

_FRONT: Final = Struct(">qiibI")
_COVERED: Final = Struct(">hiqqqhii")
_LENGTH_BEFORE_BODY: Final = HEADER_BYTES - 12
NULL: Final = encode_varint(-1)
"""The length of a null key or value."""

Pair = tuple[bytes | None, bytes | None]


def build_batch(
    pairs: Sequence[Pair],
    *,
    timestamp_ms: int,
    codec: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytearray:
    """One batch of (key, value) pairs, at least one, at base offset 0 and leader epoch -1.

    None is Kafka's null. The caller owns the result; ``assign`` gives it its place in a log.
    """
    assert pairs, "only compaction leaves empty batches"
    attributes = 0
    if is_transactional:
        attributes = TRANSACTIONAL
    if is_control:
        attributes |= CONTROL
    count = len(pairs)
    return seal(
        b"".join(encoded_pairs(pairs, 0)),
        codec,
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )


def build_batch_in_rows(
    sections: Sequence[Sequence[Pair] | RecordRows], *, timestamp_ms: int, codec: int = 0
) -> bytearray:
    """What :func:`build_batch` makes of the same records, where some of them are in rows."""
    parts: list[bytes | bytearray] = []
    count = 0
    for section in sections:
        if isinstance(section, RecordRows):
            parts += section.encoded(count)
            count += section.count
        else:
            parts += encoded_pairs(section, count)
            count += len(section)
    assert count, "only compaction leaves empty batches"
    body = b"".join(parts)
    return seal(body, codec, 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)


def encoded_pairs(pairs: Sequence[Pair], index: int) -> list[bytes]:
    """The records in pieces, the first of them at offset delta ``index``."""
    parts: list[bytes] = []
    for key, value in pairs:
        if key is None:
            key_size, key = NULL, b""
        else:
            size = len(key)
            key_size = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
        if value is None:
            value_size, value = NULL, b""
        else:
            size = len(value)
            value_size = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
        delta = SMALL[index] if index < SMALL_COUNT else encode_varint(index)
        body = b"".join((b"\0\0", delta, key_size, key, value_size, value, b"\0"))
        size = len(body)
        parts += (SMALL[size] if size < SMALL_COUNT else encode_varint(size), body)
        index += 1
    return parts


def build_single(key: bytes, value: bytes | None, timestamp_ms: int) -> bytearray:
    """What :func:`build_batch` makes of one pair, at two thirds of its price."""
    size = len(key)
    key_size = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
    if value is None:
        value_size, value = NULL, b""
    else:
        size = len(value)
        value_size = SMALL[size] if size < SMALL_COUNT else encode_varint(size)
    body = b"".join((b"\0\0\0", key_size, key, value_size, value, b"\0"))
    size = len(body)
    body = (SMALL[size] if size < SMALL_COUNT else encode_varint(size)) + body
    covered, crc = _single_covered(timestamp_ms)
    front = _FRONT.pack(0, _LENGTH_BEFORE_BODY + len(body), -1, 2, crc32c(body, crc))
    return bytearray(front + covered + body)


@lru_cache(maxsize=4)
def _single_covered(timestamp_ms: int) -> tuple[bytes, int]:
    """The same for all batches of one turn: the fields under the checksum, and theirs."""
    covered = _COVERED.pack(0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1)
    return covered, crc32c(covered)


def build_batch_of(
    records: Sequence[Record],
    *,
    codec: int = 0,
    append_time: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytearray:
    """One batch of records in rising offsets, at least one; gaps between them stay.

    The first record's offset is the base offset, its timestamp the base timestamp; the leader
    epoch is -1. ``append_time`` marks the batch as stamped by the broker at that time. Raises
    CorruptRecords(INVALID_TIMESTAMP) when no 64 bits hold a timestamp or its delta.
    """
    assert records, "only compaction leaves empty batches"
    base_offset = records[0].offset
    base_timestamp = records[0].timestamp if append_time is None else append_time
    attributes = 0 if append_time is None else LOG_APPEND_TIME
    newest = _newest(records, base_timestamp) if append_time is None else append_time
    body = b"".join(
        [
            encode_record(record, base_offset, base_timestamp if append_time is None else None)
            for record in records
        ]
    )
    batch = seal(
        body,
        codec,
        attributes | TRANSACTIONAL if is_transactional else attributes,
        records[-1].offset - base_offset,
        base_timestamp,
        newest,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch[:8] = base_offset.to_bytes(8, "big")
    return batch


def _newest(records: Sequence[Record], base_timestamp: int) -> int:
    """The greatest timestamp, once all of them and their deltas are known to fit."""
    timestamps = [record.timestamp for record in records]
    oldest, newest = min(timestamps), max(timestamps)
    least, most = INT64_MIN + max(base_timestamp, 0), INT64_MAX + min(base_timestamp, 0)
    if oldest < least or newest > most:
        text = f"timestamps {oldest} to {newest} around {base_timestamp}"
        raise CorruptRecords(text, ErrorCode.INVALID_TIMESTAMP)
    return newest


def encode_record(record: Record, base_offset: int, base_timestamp: int | None) -> bytes:
    """One record with its length; without a base its timestamp delta is 0."""
    stamp = 0 if base_timestamp is None else record.timestamp - base_timestamp
    parts = [
        b"\0",
        encode_varint(stamp),
        encode_varint(record.offset - base_offset),
        _prefixed(record.key),
        _prefixed(record.value),
        encode_varint(len(record.headers)),
    ]
    parts += [part for header in record.headers for part in _encoded(header)]
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encoded(header: HeaderPair) -> tuple[bytes, bytes]:
    key, value = header
    return _prefixed(key.encode()), _prefixed(value)


def _prefixed(field: bytes | None) -> bytes:
    return NULL if field is None else encode_varint(len(field)) + field


def seal(
    body: bytes,
    codec: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """Compress a record section and put its header in front, at base offset 0, epoch -1.

    ``attributes`` come without codec bits. Positional throughout: this is the hot end of every
    commit.
    """
    if codec:
        body = compress(codec, body)
        attributes |= codec
    covered = _COVERED.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    length = _LENGTH_BEFORE_BODY + len(body)
    front = _FRONT.pack(0, length, -1, 2, crc32c(body, crc32c(covered)))
    return bytearray(b"").join((front, covered, body))


def reseal(batch: bytearray | memoryview) -> None:
    """Compute the checksum again, after a change of anything it covers."""
    with memoryview(batch) as view:
        crc = crc32c(view[CRC_AT + 4 :])
    batch[CRC_AT : CRC_AT + 4] = crc.to_bytes(4, "big")
