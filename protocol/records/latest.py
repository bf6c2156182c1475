"""The last record of each key, gathered from batch after batch with as little work as can be.

For whoever folds millions of records that mostly replace each other. The layout of a record is
drawn in record.py. Source: log.md section 1.5.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from . import batch
from .codecs import READ_BYTES_MAX, decompress
from .header import CODEC_MASK, HEADER_BYTES

Latest = dict[bytes | None, tuple[int, bytes | None]]
"""By key: offset and value of its last record."""

_BETWEEN_YIELDS: Final = 255
_TWO_BYTES: Final = (1 << 14) - 1
"""More than two bytes of a varint hold; its high bit says that a third one follows."""


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


def _gather_plain(  # noqa: C901 - hot loop
    latest: Latest, data: bytes, base_offset: int, count: int
) -> Generator[None, None, bool]:
    """The same for records with a key, no headers and lengths of at most two bytes.

    False at the first that is otherwise.
    """
    position = 0
    try:
        for number in range(count):
            if number & _BETWEEN_YIELDS == _BETWEEN_YIELDS:
                yield
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
                return False
            latest[data[position:after]] = (base_offset + (delta >> 1), value)
            position = stop
    except IndexError:
        return False
    return position == len(data)
