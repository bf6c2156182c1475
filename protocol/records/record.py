"""Records of magic 2, read one by one from a decompressed record section.

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    | key length varint | key | value length varint | value
    | header count varint | { key length varint | key | value length varint | value } ...

Length counts what follows it; a length of -1 is null. Source: docs/spec/log.md §1.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .corrupt_records import CorruptRecords
from .varints import VARLONG_BYTES_MAX, decode_varint

HeaderPair = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record as a reader sees it; offset and timestamp are absolute."""

    offset: int
    timestamp: int
    """Milliseconds since 1970, -1 for none."""
    key: bytes | None
    value: bytes | None
    headers: tuple[HeaderPair, ...] = ()


def decode_records(  # noqa: C901 - hot loop
    data: bytes,
    position: int,
    *,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
) -> Iterator[Record]:
    """The ``count`` records from ``position`` to the very end of ``data``.

    ``append_time`` replaces the records' own timestamps when it is not None. Raises
    CorruptRecords when the bytes are not exactly that many records; those before are good.
    """
    end = len(data)
    make = tuple.__new__
    try:
        for _ in range(count):
            length = data[position]
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
                position += 1
            else:
                length, position = decode_varint(data, position)
            stop = position + length
            if not position < stop <= end:
                raise CorruptRecords(f"a record of {length} bytes, {end - position} are left")

            stamp = data[position + 1]
            if stamp < 0x80:
                stamp = (stamp >> 1) ^ -(stamp & 1)
                position += 2
            else:
                stamp, position = decode_varint(data, position + 1, VARLONG_BYTES_MAX)
            delta = data[position]
            if delta < 0x80:
                delta = (delta >> 1) ^ -(delta & 1)
                position += 1
            elif not delta & 1 and (high := data[position + 1]) < 0x80:
                delta = high << 6 | (delta & 0x7F) >> 1
                position += 2
            else:
                delta, position = decode_varint(data, position)

            key, position = _field(data, position, stop)
            value, position = _field(data, position, stop)
            headers: tuple[HeaderPair, ...] = ()
            if data[position]:
                headers, position = decode_headers(data, position, stop)
            else:
                position += 1
            if position != stop:
                raise CorruptRecords(f"a record ends at {position}, not at {stop}")
            time = base_timestamp + stamp if append_time is None else append_time
            yield make(Record, (base_offset + delta, time, key, value, headers))
    except IndexError as error:
        raise CorruptRecords("the last record is cut") from error
    if position != end:
        raise CorruptRecords(f"{end - position} bytes after the last of {count} records")


def _field(data: bytes, position: int, stop: int) -> tuple[bytes | None, int]:
    """A field whose length stands before it; None for length -1."""
    length = data[position]
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    elif not length & 1 and (high := data[position + 1]) < 0x80:
        length = high << 6 | (length & 0x7F) >> 1
        position += 2
    else:
        length, position = decode_varint(data, position)
    if length < 0:
        if length != -1:
            raise CorruptRecords(f"a length of {length}")
        return None, position
    after = position + length
    if after > stop:
        raise CorruptRecords(f"a field of {length} bytes, {stop - position} are left")
    return data[position:after], after


def decode_headers(data: bytes, position: int, stop: int) -> tuple[tuple[HeaderPair, ...], int]:
    """The headers whose number stands at ``position``, repeated keys included, and what follows.

    ``stop`` is where the record ends. Raises CorruptRecords, IndexError at the end of ``data``.
    """
    count, position = decode_varint(data, position)
    if not 0 <= count <= stop - position:
        raise CorruptRecords(f"{count} headers in {stop - position} bytes")
    headers = []
    for _ in range(count):
        key, position = _field(data, position, stop)
        if key is None:
            raise CorruptRecords("a header without a key")
        value, position = _field(data, position, stop)
        headers.append((str(key, "utf-8", "replace"), value))
    return tuple(headers), position
