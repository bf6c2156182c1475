"""The records of several batches as columns of numbers, nothing made for a single record.

For readers of whole logs who make columns of their own: keys and values stay where they are, and
these columns say where. Records are found one by one, or at once where lengths repeat; every field
is then read in all of them together. Needs numpy, which the extra ``spark`` brings.
Source: docs/spec/log.md §1.5, drawn in record.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barnabas.protocol.records.compression.codecs import READ_BYTES_MAX, decompress

from . import batch
from .corrupt_records import CorruptRecords
from .header import CODEC_MASK, HEADER_BYTES
from .record import HeaderPair, decode_headers
from .varints import VARINT_BYTES_MAX, VARLONG_BYTES_MAX, decode_varint

Numbers = NDArray[np.int64]

_SINGLES: Final = 64
"""Records taken one by one before lengths are tried again for a repetition."""
_RUN_MIN: Final = 16
_RUN_MAX: Final = 1 << 14
_SLACK: Final = bytes(VARLONG_BYTES_MAX)
"""Behind the last record, so that a number that is cut may be read before that is noticed."""


@dataclass(frozen=True, slots=True)
class Section:
    """The records of one entry, decompressed, and what its header says about them."""

    data: bytes
    count: int
    base_offset: int
    base_timestamp: int
    append_time: int | None
    """Replaces the records' own timestamps when it is not None."""
    timestamp_type: int
    """0 for the producer's time, 1 for the broker's, -1 for none."""


def section_at(buf: batch.Buffer, pos: int, *, bytes_max: int = READ_BYTES_MAX) -> Section:
    """The records of the entry there, of any magic; those before 2 are written anew as a batch.

    Raises CorruptRecords.
    """
    kind = batch.timestamp_type(buf, pos)
    if batch.magic(buf, pos) < 2:
        made = batch.build_batch_of(list(batch.records(buf, pos, bytes_max=bytes_max)))
        return _section(made, 0, kind, bytes_max)
    return _section(buf, pos, kind, bytes_max)


def _section(buf: batch.Buffer, pos: int, kind: int, bytes_max: int) -> Section:
    head = batch.header(buf, pos)
    data = bytes(memoryview(buf)[pos + HEADER_BYTES : pos + batch.size(buf, pos)])
    codec = head.attributes & CODEC_MASK
    if codec:
        data = decompress(codec, data, bytes_max=bytes_max)
    if head.record_count < 0:
        raise CorruptRecords(f"a batch of {head.record_count} records")
    base, stamp = head.base_offset, head.base_timestamp
    return Section(data, head.record_count, base, stamp, head.append_time, kind)


class Columns(NamedTuple):
    """Records in their order; every array has one element a record.

    Places count bytes of ``data``; a size of -1 is a null, and its place is where it would begin.
    """

    data: bytes
    offsets: Numbers
    timestamps: Numbers
    """Milliseconds since 1970, -1 for none."""
    timestamp_types: Numbers
    key_positions: Numbers
    key_sizes: Numbers
    value_positions: Numbers
    value_sizes: Numbers
    header_positions: Numbers
    """Of the number of headers, behind which nobody has looked yet unless it is 0."""
    stops: Numbers
    """Where each record ends."""

    def chosen(self, which: NDArray[np.bool_]) -> Columns:
        """The records where ``which`` is true."""
        data, *arrays = self
        return Columns(data, *[column[which] for column in arrays])

    def headers(self) -> list[tuple[HeaderPair, ...] | None]:
        """The headers of every record, None where there are none; raises CorruptRecords."""
        found: list[tuple[HeaderPair, ...] | None] = [None] * len(self.offsets)
        having = np.flatnonzero(_bytes(self.data)[self.header_positions])
        places, stops = self.header_positions[having].tolist(), self.stops[having].tolist()
        for index, place, stop in zip(having.tolist(), places, stops, strict=True):
            headers, after = decode_headers(self.data, place, stop)
            if after != stop:
                raise CorruptRecords(f"a record ends at {after}, not at {stop}")
            found[index] = headers or None
        return found


def columns(sections: Sequence[Section]) -> Columns:
    """All records of these sections.

    Raises CorruptRecords when a section is not exactly as many records as it says; the headers of
    records are not looked at.
    """
    data = b"".join([*(section.data for section in sections), _SLACK])
    counts = [section.count for section in sections]
    starts = _all_starts(data, sections)
    raw = _bytes(data)
    lengths, bodies = _numbers(raw, starts, VARINT_BYTES_MAX)
    if bool((lengths < 1).any()):
        raise CorruptRecords("a record of less than a byte")
    stops = bodies + lengths
    stamps, at = _numbers(raw, bodies + 1, VARLONG_BYTES_MAX)
    deltas, at = _numbers(raw, at, VARINT_BYTES_MAX)
    key_sizes, key_positions = _numbers(raw, at, VARINT_BYTES_MAX)
    at = _after(key_positions, key_sizes, stops)
    value_sizes, value_positions = _numbers(raw, at, VARINT_BYTES_MAX)
    at = _after(value_positions, value_sizes, stops)
    _check_ends(raw, at, stops)
    bases = np.array(
        [(section.base_offset, section.timestamp_type) for section in sections], np.int64
    )
    bases = np.repeat(bases.reshape(-1, 2), counts, axis=0)
    return Columns(
        data,
        bases[:, 0] + deltas,
        _times(sections, counts, stamps),
        bases[:, 1],
        key_positions,
        key_sizes,
        value_positions,
        value_sizes,
        at,
        stops,
    )


def _bytes(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _times(sections: Sequence[Section], counts: Sequence[int], stamps: Numbers) -> Numbers:
    bases = [
        section.base_timestamp if section.append_time is None else section.append_time
        for section in sections
    ]
    is_own = np.repeat(
        np.array([section.append_time is None for section in sections], bool), counts
    )
    return np.repeat(np.array(bases, np.int64), counts) + np.where(is_own, stamps, 0)


def _all_starts(data: bytes, sections: Sequence[Section]) -> Numbers:
    """Where every record begins; raises CorruptRecords."""
    found: list[Numbers] = [np.empty(0, np.int64)]
    ends = np.cumsum([0, *(len(section.data) for section in sections)]).tolist()
    try:
        for section, (position, end) in zip(sections, pairwise(ends), strict=True):
            after = _add_starts(data, position, end, section.count, found)
            if after != end:
                raise CorruptRecords(
                    f"{section.count} records end {end - after} bytes before the batch does"
                )
    except IndexError as error:
        raise CorruptRecords("the last record is cut") from error
    return np.concatenate(found)


def _add_starts(data: bytes, position: int, end: int, count: int, found: list[Numbers]) -> int:
    """Append where ``count`` records begin; where the last of them ends."""
    while count:
        stride, same = _repeated(data, position, end, count)
        if same:
            found.append(_evenly(position, stride, same))
            position += stride * same
            count -= same
            continue
        singles = array("q")
        add = singles.append
        same = min(count, _SINGLES)
        for _ in range(same):
            add(position)
            length = data[position]
            if length < 0x80:
                position += (length >> 1) + 1
            elif (high := data[position + 1]) < 0x80:
                position += (high << 6 | (length & 0x7F) >> 1) + 2
            else:
                length, position = decode_varint(data, position)
                position += length
        count -= same
        found.append(np.frombuffer(singles, np.int64))
    return position


def _repeated(data: bytes, position: int, end: int, count: int) -> tuple[int, int]:
    """Bytes from record to record, and how many from here on are as long; (0, 0) for few."""
    length, body = decode_varint(data, position)
    stride = body - position + length
    most = min(count, (end - position) // stride, _RUN_MAX) if length > 0 else 0
    probe = position + stride * (_RUN_MIN - 1)
    if most < _RUN_MIN or data[probe : probe + body - position] != data[position:body]:
        return 0, 0
    for place in range(position, body):
        column = data[place : place + stride * (most - 1) + 1 : stride]
        most -= len(column.lstrip(column[:1]))
    return (stride, most) if most >= _RUN_MIN else (0, 0)


def _evenly(position: int, stride: int, count: int) -> Numbers:
    return np.arange(position, position + stride * count, stride, dtype=np.int64)


def _numbers(raw: NDArray[np.uint8], at: Numbers, bytes_max: int) -> tuple[Numbers, Numbers]:
    """The numbers at these places, as varints.py reads them, and the places after them."""
    byte = raw[at]
    found = (byte & 0x7F).astype(np.uint64)
    after = at + 1
    wide = np.flatnonzero(byte & 0x80)
    shift = 7
    while wide.size:
        if shift == 7 * bytes_max:
            raise CorruptRecords(f"a number of more than {bytes_max} bytes")
        byte = raw[after[wide]]
        found[wide] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        after[wide] += 1
        wide = wide[byte >= 0x80]
        shift += 7
    if bytes_max == VARINT_BYTES_MAX:
        found &= np.uint64(0xFFFF_FFFF)
    signs = (found & np.uint64(1)).astype(np.int64)
    return (found >> np.uint64(1)).astype(np.int64) ^ -signs, after


def _after(places: Numbers, sizes: Numbers, stops: Numbers) -> Numbers:
    """Where fields of these sizes end; raises CorruptRecords when that is in no record."""
    ends = places + np.maximum(sizes, 0)
    if bool((sizes < -1).any()) or bool((ends >= stops).any()):
        raise CorruptRecords("a field that is longer than its record")
    return ends


def _check_ends(raw: NDArray[np.uint8], at: Numbers, stops: Numbers) -> None:
    """A record without headers ends after their number."""
    if bool(((raw[at] == 0) & (at + 1 != stops)).any()):
        raise CorruptRecords("a record that ends before or after its length says")
