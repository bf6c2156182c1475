"""Zstandard frames, measured before they are decoded.

Java writes frames without their content size, so the room they need is not announced; but the
block headers can be walked, and each block yields at most 128 KiB:

    28 b5 2f fd | FHD | [window 1] | [dictionary 0-4] | [content size 0-8] |
    { last 1 bit, kind 2 bits, size 21 bits, LE | block } ... | [checksum 4]

Source: docs/spec/log.md §1.7; RFC 8878 section 3.1.
"""

from __future__ import annotations

from typing import Final

import cramjam

from barnabas.protocol.records.corrupt_records import CorruptRecords, ExpandsTooFar
from barnabas.protocol.records.work_limit import ZSTD_FRAME_STEPS, Work, decompression_steps

from .output_room import room

MAGIC: Final = 0xFD2FB528
SKIPPABLE: Final = 0x184D2A50
BLOCK_BYTES_MAX: Final = 128 << 10
LEVEL: Final = 3
NO_ROOM: Final = "failed to write whole buffer"
"""What cramjam says where the room is full and more comes: Rust's words, not zstd's."""
ZSTD: Final = 4
"""The codec's number."""

_RAW, _RUN, _COMPRESSED, _RESERVED = range(4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)


def compress(data: bytes | bytearray | memoryview, level: int | None) -> bytes:
    """One frame without content size, as the streams of other clients are."""
    stream = cramjam.zstd.Compressor(LEVEL if level is None else level)
    stream.compress(bytes(data))
    return bytes(stream.finish())


def decompress(
    data: bytes | bytearray | memoryview, bytes_max: int, work: Work | None = None
) -> bytes:
    """All frames of ``data``, skippable ones left out.

    What it takes is counted from the headers, so that too much work is refused before any is done.
    """
    try:
        size_max = _size_max(memoryview(data), work)
    except IndexError as error:
        raise CorruptRecords("zstd: the frame is cut") from error
    room_bytes = min(size_max, bytes_max)
    if work is not None:
        work.take(decompression_steps(ZSTD, room_bytes))
    out = memoryview(room(room_bytes))[:room_bytes]
    try:
        count = cramjam.zstd.decompress_into(data, out)
    except cramjam.DecompressionError as error:
        if size_max > bytes_max and str(error) == NO_ROOM:
            raise ExpandsTooFar("zstd", bytes_max) from error
        raise CorruptRecords(f"zstd: {error}") from error
    return bytes(out[:count])


def _size_max(view: memoryview, work: Work | None) -> int:
    """An upper bound of what the frames expand to; raises IndexError where they are cut."""
    size = position = 0
    while position < len(view):
        if work is not None:
            work.take(ZSTD_FRAME_STEPS)
        number = _number(view, position, 4)
        if number & ~0xF == SKIPPABLE:
            position += 8 + _number(view, position + 4, 4)
        elif number == MAGIC:
            part, position = _frame_size_max(view, position + 4, work)
            size += part
        else:
            raise CorruptRecords("zstd: no frame")
    return size


def _frame_size_max(view: memoryview, position: int, work: Work | None) -> tuple[int, int]:
    """The bound for one frame, whose descriptor is at ``position``; and where the next begins."""
    descriptor = view[position]
    is_single_segment = descriptor & 0x20
    size_bytes = _CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if is_single_segment else 0)
    position += 1 if is_single_segment else 2
    position += _DICTIONARY_BYTES[descriptor & 3] + size_bytes
    size_max = is_last = 0
    while not is_last:
        if work is not None:
            work.take(1)
        header = _number(view, position, 3)
        is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
        if kind == _RESERVED or size > BLOCK_BYTES_MAX:
            raise CorruptRecords("zstd: a block of no known kind or size")
        size_max += BLOCK_BYTES_MAX if kind == _COMPRESSED else size
        position += 3 + (1 if kind == _RUN else size)
    return size_max, position + (4 if descriptor & 4 else 0)


def _number(view: memoryview, position: int, count: int) -> int:
    if position + count > len(view):
        raise IndexError(position)
    return int.from_bytes(view[position : position + count], "little")
