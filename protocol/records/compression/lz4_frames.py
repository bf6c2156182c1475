"""LZ4 frames as Kafka writes and reads them: independent blocks, nothing optional.

    04 22 4d 18 | FLG | BD | [content size 8] | HC | { size uint32 LE | block | [check 4] } ... |
    00 00 00 00 | [content check 4]

HC is the second byte of xxHash32 over FLG..content size. Writers of magic 0 hashed the frame's
magic number too and wrote another byte; readers of magic 0 look at neither. Frames are taken
apart here since Kafka skips the content checksum and whatever follows the end mark, and no
library allows that. Source: docs/spec/log.md §1.7; KAFKA-3160, kafka-python #522.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import cramjam

from barnabas.protocol.records.corrupt_records import CorruptRecords, ExpandsTooFar
from barnabas.protocol.records.work_limit import BLOCK_STEPS, Work, decompression_steps

from .output_room import more_room, room

MAGIC: Final = b"\x04\x22\x4d\x18"
BLOCK_BYTES: Final = 64 << 10
END_MARK: Final = b"\0\0\0\0"
STORED: Final = 1 << 31
EXPANSION_MAX: Final = 255
"""A byte of a block stands for at most so many bytes."""

LZ4: Final = 3
"""The codec's number."""

FLG_VERSION: Final = 0x40
FLG_INDEPENDENT: Final = 0x20
FLG_BLOCK_CHECKSUM: Final = 0x10
FLG_CONTENT_SIZE: Final = 0x08

HEADER: Final = MAGIC + b"\x60\x40\x82"
LEGACY_HEADER: Final = MAGIC + b"\x60\x40\x1a"

_SIZE: Final = Struct("<I")
_MASK: Final = 0xFFFFFFFF


def compress(data: bytes | bytearray | memoryview, level: int | None, *, is_legacy: bool) -> bytes:
    """A frame of 64 KiB blocks; ``level`` above 2 asks for the slow, denser search."""
    out = [LEGACY_HEADER if is_legacy else HEADER]
    view = memoryview(data)
    search = level if level is not None and level > 2 else None
    for start in range(0, len(view), BLOCK_BYTES):
        plain = view[start : start + BLOCK_BYTES]
        block = bytes(
            cramjam.lz4.compress_block(
                plain,
                mode="default" if search is None else "high_compression",
                compression=search,
                store_size=False,
            )
        )
        if len(block) < len(plain):
            out += (_SIZE.pack(len(block)), block)
        else:
            out += (_SIZE.pack(len(plain) | STORED), bytes(plain))
    out.append(END_MARK)
    return b"".join(out)


def decompress(
    data: bytes | bytearray | memoryview,
    bytes_max: int,
    *,
    is_legacy: bool = False,
    work: Work | None = None,
) -> bytes:
    """The first frame of ``data``; ``is_legacy`` leaves its header checksum unread."""
    view = memoryview(data)
    flags, block_bytes_max, position = _descriptor(view, is_legacy)
    out, filled = room(0), 0
    end = len(view)
    while True:
        if end - position < 4:
            raise CorruptRecords("lz4: no end mark")
        (marked,) = _SIZE.unpack_from(view, position)
        size = marked & ~STORED
        if not size:
            return bytes(memoryview(out)[:filled])
        check = 4 if flags & FLG_BLOCK_CHECKSUM else 0
        if size > min(block_bytes_max, end - position - 4 - check):
            raise CorruptRecords(f"lz4: a block of {size} bytes")
        after = position + 4 + size + check
        needed = filled + min(block_bytes_max, EXPANSION_MAX * size)
        out = more_room(out, filled, needed)
        count = _decode(view[position:after], marked, check, memoryview(out)[filled:needed])
        filled += count
        if filled > bytes_max:
            raise ExpandsTooFar("lz4", bytes_max)
        if work is not None:
            work.take(BLOCK_STEPS + decompression_steps(LZ4, count))
        position = after


def _descriptor(view: memoryview, is_legacy: bool) -> tuple[int, int, int]:
    """Flags, largest block, and where the first block begins."""
    if len(view) < 7 or bytes(view[:4]) != MAGIC:
        raise CorruptRecords("lz4: no frame")
    flags, largest = view[4], view[5]
    if flags & 0xC3 != FLG_VERSION or not flags & FLG_INDEPENDENT:
        raise CorruptRecords(f"lz4: frame flags {flags:#04x}")
    if largest & 0x8F or largest < 0x40:
        raise CorruptRecords(f"lz4: block descriptor {largest:#04x}")
    position = 14 if flags & FLG_CONTENT_SIZE else 6
    if len(view) <= position:
        raise CorruptRecords("lz4: the frame header is cut")
    if not is_legacy and view[position] != header_checksum(bytes(view[4:position])):
        raise CorruptRecords("lz4: frame header checksum")
    return flags, 1 << (8 + 2 * (largest >> 4)), position + 1


def _decode(block: memoryview, marked: int, check: int, out: memoryview) -> int:
    """How many bytes of ``out`` one block filled; ``block`` includes its size and checksum.

    A block with a checksum goes as a frame of its own, so that the library verifies it.
    """
    try:
        if check:
            descriptor = bytes((FLG_VERSION | FLG_INDEPENDENT | FLG_BLOCK_CHECKSUM, 0x70))
            checksum = bytes((header_checksum(descriptor),))
            frame = b"".join((MAGIC, descriptor, checksum, block, END_MARK))
            return int(cramjam.lz4.decompress_into(frame, out))
        plain = block[4:]
        if marked & STORED:
            out[: len(plain)] = plain
            return len(plain)
        return int(cramjam.lz4.decompress_block_into(plain, out, output_len=len(out)))
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"lz4: {error}") from error


def header_checksum(descriptor: bytes) -> int:
    """Second byte of xxHash32, seed 0, of the 2 or 10 bytes of a frame descriptor."""
    assert len(descriptor) < 16, "longer input needs the striped half of xxHash32"
    value = (374761393 + len(descriptor)) & _MASK
    words = len(descriptor) // 4 * 4
    for position in range(0, words, 4):
        lane = int.from_bytes(descriptor[position : position + 4], "little")
        value = _rotated(value + lane * 3266489917, 17) * 668265263 & _MASK
    for byte in descriptor[words:]:
        value = _rotated(value + byte * 374761393, 11) * 2654435761 & _MASK
    value = (value ^ value >> 15) * 2246822519 & _MASK
    value = (value ^ value >> 13) * 3266489917 & _MASK
    return (value ^ value >> 16) >> 8 & 0xFF


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return value << bits & _MASK | value >> (32 - bits)
