"""Records of one shape that follow each other, checked by columns instead of one by one.

Producers that measure, count or log in fixed fields send records of equal length: then every
field stands at the same distance from the last, and a strided slice compares a whole column of
bytes at once. Source: docs/spec/log.md §1.5 (record) and §1.8, steps 4 to 6.

    | size | attributes | time delta | offset delta | key size | key | value size | value | 0 |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from .corrupt_records import CorruptRecords
from .varints import VARLONG_BYTES_MAX, decode_varint

RECORDS_MIN: Final = 16
"""A shorter run is not worth its overhead."""

# The bytes of offset deltas 0, 1, 2, ... in zig-zag: two bytes from 64 on, three from 8192 on.
_ONE: Final = bytes(range(0, 128, 2))
_LOW: Final = bytes(range(128, 256, 2))
_SECOND: Final = b"".join(bytes((number,)) * 64 for number in range(128))
_MIDDLE: Final = bytes(byte | 128 for byte in _SECOND)
_TWO_BYTES_SINCE: Final = 64
_THREE_BYTES_SINCE: Final = 8192
_FOUR_BYTES_SINCE: Final = 1 << 20

_UINT64: Final = (1 << 64) - 1
_ASCII: Final = bytes(range(128))
_FLIPPED: Final = bytes(byte ^ 128 for byte in range(256))


class Run(NamedTuple):
    """So many good records in a row, with the offset deltas they should have."""

    records: int
    stop: int
    """Where the next record begins."""
    oldest_delta: int
    newest_delta: int
    has_null_keys: bool


class _Shape(NamedTuple):
    """Where the fields of a record are, from its first byte."""

    size: int
    time_at: int
    offset_at: int
    fixed: Sequence[int]
    """Places of the bytes that all records of this shape share."""
    has_null_key: bool


def run_from(data: bytes | bytearray, position: int, index: int, count: int) -> Run | None:
    """The run that begins at ``position`` with record ``index`` of ``count``.

    None when it would be short, or when anything about the first record is unusual.
    """
    shape = _shape(data, position)
    if shape is None:
        return None
    size = shape.size
    most = min(_alike(index), count - index, (len(data) - position) // size)
    if most < RECORDS_MIN:
        return None
    probe = position + size * (RECORDS_MIN - 1)
    if any(data[probe + place] != data[position + place] for place in shape.fixed):
        return None
    for place in shape.fixed:
        column = _column(data, position + place, size, most)
        first = column[:1]
        if column != first * most:
            most -= len(column.lstrip(first))
    most = _count_in_order(data, position + shape.offset_at, size, index, most)
    times = [
        _column(data, position + place, size, most)
        for place in range(shape.time_at, shape.offset_at)
    ]
    most = _ended(times, most)
    if most < RECORDS_MIN:
        return None
    deltas = _deltas([column[:most] for column in times])
    return Run(most, position + most * size, min(deltas), max(deltas), shape.has_null_key)


def _shape(data: bytes | bytearray, position: int) -> _Shape | None:
    """How the record at ``position`` is laid out; None for one with headers or with faults."""
    try:
        length, body = decode_varint(data, position)
        _, offset = decode_varint(data, body + 1, VARLONG_BYTES_MAX)
        _, key = decode_varint(data, offset)
        key_length, key_bytes = decode_varint(data, key)
        value = key_bytes + max(0, key_length)
        value_length, value_bytes = decode_varint(data, value)
        last = value_bytes + max(0, value_length)
        if key_length < -1 or value_length < -1 or body + length != last + 1 or data[last]:
            return None
    except (CorruptRecords, IndexError):
        return None
    fixed = [*range(position, body), *range(key, key_bytes), *range(value, value_bytes), last]
    return _Shape(
        last + 1 - position,
        body + 1 - position,
        offset - position,
        [place - position for place in fixed],
        key_length < 0,
    )


def _column(data: bytes | bytearray, position: int, stride: int, count: int) -> bytes | bytearray:
    return data[position : position + stride * (count - 1) + 1 : stride] if count else b""


def _alike(index: int) -> int:
    """How many offset deltas from ``index`` on have as many bytes, and the same third one."""
    if index < _TWO_BYTES_SINCE:
        return _TWO_BYTES_SINCE - index
    if index < _FOUR_BYTES_SINCE:
        return _THREE_BYTES_SINCE - index % _THREE_BYTES_SINCE
    return 0


def _count_in_order(
    data: bytes | bytearray, position: int, stride: int, index: int, most: int
) -> int:
    """``most`` when that many offset deltas are index, index + 1, ..., else 0."""
    if index < _TWO_BYTES_SINCE:
        wanted = [_ONE[index : index + most]]
    else:
        low = _LOW[index % 64 :] + _LOW * (most // 64 + 1)
        place = index % _THREE_BYTES_SINCE
        wanted = [low[:most], _SECOND[place : place + most]]
        if index >= _THREE_BYTES_SINCE:
            wanted[1] = _MIDDLE[place : place + most]
            wanted.append(bytes((index >> 13,)) * most)
    for place, column in enumerate(wanted):
        if _column(data, position + place, stride, most) != column:
            return 0
    return most


def _ended(columns: Sequence[bytes | bytearray], most: int) -> int:
    """How many numbers have as many bytes as the first: all but the last have their top bit."""
    *upper, last = columns
    for column in [*(one.translate(_FLIPPED) for one in upper), last]:
        if not column.isascii():
            most = min(most, len(column) - len(column.lstrip(_ASCII)))
    return most


def _deltas(columns: Sequence[bytes | bytearray]) -> list[int]:
    """The different numbers that stand in these columns, out of zig-zag."""
    found = []
    values = set(zip(*columns, strict=True)) if len(columns) > 1 else _singles(columns[0])
    for digits in values:
        number = sum((digit & 127) << 7 * place for place, digit in enumerate(digits)) & _UINT64
        found.append((number >> 1) ^ -(number & 1))
    return found


def _singles(column: bytes | bytearray) -> Iterator[tuple[int]]:
    """Each different byte: there are few, and a set would look at all of them."""
    while column:
        yield (column[0],)
        column = column.replace(column[:1], b"")
