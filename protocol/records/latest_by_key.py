"""The last record of each key, gathered from batch after batch with as little work as can be.

For whoever folds millions of records that mostly replace each other. Records of equal length that
follow each other are compared by columns and unpacked at once (as in `equal_records.py`, which
checks more and is dearer), the others are read one by one. The layout of a record is drawn in
record.py. Source: docs/spec/log.md §1.5.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Final

from crc32c import crc32c

from barnabas.protocol.records.compression.codecs import READ_BYTES_MAX, decompress

from . import batch
from .header import ATTRIBUTES_AT, CODEC_MASK, CONTROL, ENVELOPE_BYTES, HEADER_BYTES, TRANSACTIONAL

Latest = dict[bytes | None, tuple[int, bytes | None]]
"""By key: offset and value of its last record."""

_BETWEEN_YIELDS: Final = 255
_AT_ONCE: Final = 512
"""Records unpacked between two yields: 0.1 ms."""
_RUN_MIN: Final = 16
"""A shorter run is not worth its overhead."""
_SHORT_AT_ONCE: Final = 64
_SHORT_HEADER: Final = Struct(">qi4xbIhi30xi").unpack_from
_NOT_PLAIN: Final = CODEC_MASK | TRANSACTIONAL | CONTROL
_STEP_MAX: Final = 256
"""Where there is no run they are looked for less and less often."""
_TWO_BYTES: Final = (1 << 14) - 1
"""More than two bytes of a varint hold; its high bit says that a third one follows."""

# The bytes of offset deltas 0, 1, 2, ... in zig-zag: two bytes from 64 on, three from 8192 on.
_TWO_BYTES_SINCE: Final = 64
_THREE_BYTES_SINCE: Final = 8192
_ONE: Final = bytes(range(0, 128, 2))
_LOW: Final = bytes(range(128, 256, 2)) * 128
_SECOND: Final = b"".join(bytes((number,)) * 64 for number in range(128))


def gather(
    latest: Latest, data: batch.Buffer, position: int, floor: int
) -> Generator[None, None, None]:
    """Put the records of one batch at ``position`` into ``latest``, those below ``floor`` not.

    Yields now and then. Raises CorruptRecords; records before the bad one are in by then.
    """
    if batch.magic(data, position) == 2 and batch.base_offset(data, position) >= floor:
        head = batch.header(data, position)
        section = bytes(data[position + HEADER_BYTES : position + batch.size(data, position)])
        if head.attributes & CODEC_MASK:
            section = decompress(head.attributes & CODEC_MASK, section, bytes_max=READ_BYTES_MAX)
        is_done = yield from _gather_plain(latest, section, head.base_offset, head.record_count)
        if is_done:
            return
    for number, record in enumerate(batch.records(data, position)):
        if record.offset >= floor:
            latest[record.key] = (record.offset, record.value)
        if number & _BETWEEN_YIELDS == _BETWEEN_YIELDS:
            yield


def gather_short(
    latest: Latest, data: bytes, position: int, floor: int, until: int
) -> tuple[int, int]:
    """The same for short plain batches in a row from ``position`` on, checksums included.

    Commits that come one by one make batches of one record: calling functions for each would cost
    more than reading it. Stops at the first batch that begins below ``floor``, ends above
    ``until``, or is for :func:`gather` to judge. Returns where, and which offset follows.
    """
    for _ in range(_SHORT_AT_ONCE):
        start = position + HEADER_BYTES
        if start > len(data):
            break
        # base offset, length, magic, CRC, attributes, last offset delta, record count
        base, length, version, crc, bits, delta, count = _SHORT_HEADER(data, position)
        stop = position + ENVELOPE_BYTES + length
        is_plain = version == 2 and not bits & _NOT_PLAIN and 0 < count <= _RUN_MIN
        following = base + delta + 1
        if not is_plain or base < floor or following > until or not start <= stop <= len(data):
            break
        if crc32c(data[position + ATTRIBUTES_AT : stop]) != crc:
            break
        if _gather_each(latest, data, start, base, count) != stop:
            break
        position, floor = stop, following
    return position, floor


def _gather_plain(
    latest: Latest, data: bytes, base_offset: int, count: int
) -> Generator[None, None, bool]:
    """The same for all records of a batch; False where they are of no kind that is read here."""
    position, number, step = 0, 0, _RUN_MIN
    while number < count:
        taken, stop = 0, position
        if count - number >= _RUN_MIN:
            taken, stop = _gather_run(latest, data, position, base_offset, number, count)
        if taken:
            step = _RUN_MIN
        else:
            taken = min(count - number, step)
            stop = _gather_each(latest, data, position, base_offset, taken)
            if stop < 0:
                return False
            step = min(4 * step, _STEP_MAX)
        number, position = number + taken, stop
        if taken > _RUN_MIN:
            yield
    return position == len(data)


def _gather_run(
    latest: Latest, data: bytes, position: int, base_offset: int, number: int, count: int
) -> tuple[int, int]:
    """Records alike from record ``number`` on; the offset deltas follow each other without a gap.

    How many they are, 0 when they are few, and where the next begins.
    """
    if number < _TWO_BYTES_SINCE:
        most, width = _TWO_BYTES_SINCE - number, 1
    else:
        most, width = min(_THREE_BYTES_SINCE - number, _AT_ONCE), 2
    try:
        layout = _layout(data, position, width)
    except IndexError:
        layout = None
    if layout is None:
        return 0, position
    size, delta_at, fixed, unpack, has_key, has_value = layout
    most = min(most, count - number, (len(data) - position) // size)
    if most < _RUN_MIN or data[position + size] != data[position] or data[position + size - 1]:
        return 0, position  # few, of another length, or with headers
    end = position + size * most
    for place in fixed:
        column = data[position + place : end : size]
        first = column[:1]
        if column != first * most:
            most = len(column) - len(column.lstrip(first))
            end = position + size * most
    place = position + delta_at
    if width == 1:
        is_in_order = data[place:end:size] == _ONE[number : number + most]
    else:
        after = number + most
        is_in_order = (
            data[place:end:size] == _LOW[number:after]
            and data[place + 1 : end : size] == _SECOND[number:after]
        )
    if most < _RUN_MIN or not is_in_order:
        return 0, position
    found = zip(*unpack.iter_unpack(memoryview(data)[position:end]), strict=True)
    keys = next(found) if has_key else repeat(None)
    values = next(found) if has_value else repeat(None)
    offsets = range(base_offset + number, base_offset + number + most)
    latest.update(zip(keys, zip(offsets, values, strict=False), strict=False))
    return most, end


_Layout = tuple[int, int, tuple[int, ...], Struct, bool, bool]


def _layout(data: bytes, position: int, width: int) -> _Layout | None:
    """How the record at ``position`` is laid out, with an offset delta of ``width`` bytes.

    None for one with headers, with faults, or with a length of more than two bytes.
    """
    size = data[position]
    length_bytes = 1
    if size >= 0x80:
        size = data[position + 1] << 7 | size & 0x7F
        length_bytes = 2
    time_at = place = position + length_bytes + 1
    while data[place] >= 0x80:
        place += 1
    delta_at = place + 1
    key_at = delta_at + width
    key = data[key_at]
    key_bytes = 1
    if key >= 0x80:
        key = data[key_at + 1] << 7 | key & 0x7F
        key_bytes = 2
    value_at = key_at + key_bytes + (key >> 1 if key != 1 else 0)
    value = data[value_at]
    value_bytes = 1
    if value >= 0x80:
        value = data[value_at + 1] << 7 | value & 0x7F
        value_bytes = 2
    is_odd = size & 1 or (key & 1 and key != 1) or (value & 1 and value != 1)
    if is_odd or size | key | value > _TWO_BYTES:
        return None
    return _laid_out(
        length_bytes, delta_at - time_at, width, key_bytes, key, value_bytes, value, size >> 1
    )


@lru_cache(maxsize=1024)
def _laid_out(
    length_bytes: int,
    time_bytes: int,
    width: int,
    key_bytes: int,
    key: int,
    value_bytes: int,
    value: int,
    size: int,
) -> _Layout | None:
    """``key`` and ``value`` are lengths in zig-zag, 1 for none; ``size`` is the record's own."""
    delta_at = length_bytes + 1 + time_bytes
    key_at = delta_at + width + key_bytes
    key_end = key_at + (key >> 1 if key != 1 else 0)
    value_at = key_end + value_bytes
    last = value_at + (value >> 1 if value != 1 else 0)
    if last + 1 != length_bytes + size:
        return None
    fixed = (
        *range(length_bytes),
        *range(length_bytes + 1, delta_at),
        *range(delta_at + width, key_at),
        *range(key_end, value_at),
        last,
    )
    wanted = "".join(
        (
            f"{key_at}x",
            f"{key_end - key_at}s" if key != 1 else "",
            f"{value_at - key_end}x",
            f"{last - value_at}s" if value != 1 else "",
            "x",
        )
    )
    return last + 1, delta_at, fixed, Struct(wanted), key != 1, value != 1


def _gather_each(latest: Latest, data: bytes, position: int, base_offset: int, count: int) -> int:
    """So many records with a key, no headers and lengths of at most two bytes.

    Returns where the next begins; -1 at the first that is otherwise.
    """
    try:
        for _ in range(count):
            wide = length = data[position]
            position += 1
            if length >= 0x80:
                wide = length = data[position] << 7 | length & 0x7F
                position += 1
            stop = position + (length >> 1)
            position += 1
            while data[position] >= 0x80:
                position += 1
            delta = data[position + 1]
            position += 2
            if delta >= 0x80:
                delta = data[position] << 7 | delta & 0x7F
                wide |= delta
                position += 1
            size = data[position]
            position += 1
            if size >= 0x80:
                size = data[position] << 7 | size & 0x7F
                wide |= size
                position += 1
            after = position + (size >> 1)
            value_size = data[after]
            start = after + 1
            if value_size >= 0x80:
                value_size = data[start] << 7 | value_size & 0x7F
                wide |= value_size
                start += 1
            end = start + (value_size >> 1)
            value: bytes | None = data[start:end]
            if value_size & 1:
                value, end = None, start
            # Odd is negative. Headers end elsewhere than the record does.
            odd = (length | size | delta) & 1
            if odd or wide > _TWO_BYTES or data[end] or end + 1 != stop:
                return -1
            latest[data[position:after]] = (base_offset + (delta >> 1), value)
            position = stop
    except IndexError:
        return -1
    return position
