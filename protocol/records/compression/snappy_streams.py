"""Snappy as Java clients frame it (xerial), read with or without that frame.

    82 53 4e 41 50 50 59 00 | version int32 | compatible int32 | { size int32 | raw block } ...

Blocks hold 32 KiB each. The two versions are ignored (redpanda writes them little-endian), the
16 bytes may come again between blocks (two streams joined), and data without them is one raw
block. Source: docs/spec/log.md §1.7; kafka-python #127, go-xerial-snappy #2.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import cramjam

from barnabas.protocol.records.corrupt_records import CorruptRecords, ExpandsTooFar
from barnabas.protocol.records.work_limit import BLOCK_STEPS, Work, decompression_steps

MAGIC: Final = b"\x82SNAPPY\x00"
HEADER: Final = MAGIC + b"\0\0\0\x01\0\0\0\x01"
BLOCK_BYTES: Final = 32 << 10
EXPANSION_MAX: Final = 22
"""No snappy block can grow by more: its densest element is 64 bytes in three."""

SNAPPY: Final = 2
"""The codec's number."""

_SIZE: Final = Struct(">i")


def compress(data: bytes | bytearray | memoryview) -> bytes:
    """A xerial stream; for no data the header alone, as snappy-java does."""
    out = [HEADER]
    view = memoryview(data)
    for start in range(0, len(view), BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + BLOCK_BYTES]))
        out += (_SIZE.pack(len(block)), block)
    return b"".join(out)


def decompress(
    data: bytes | bytearray | memoryview, bytes_max: int, work: Work | None = None
) -> bytes:
    """Raises CorruptRecords for anything but a xerial stream or a raw block, and ExpandsTooFar."""
    view = memoryview(data)
    if bytes(view[:8]) != MAGIC:
        return _block(view, 0, bytes_max, work)
    out = []
    total, position, end = 0, len(HEADER), len(view)
    if end < position:
        raise CorruptRecords("snappy: the stream header is cut")
    while position < end:
        if bytes(view[position : position + 8]) == MAGIC:
            position += len(HEADER)
            if work is not None:
                work.take(1)
            continue
        if end - position < 4:
            break  # snappy-java takes a cut block size for the end
        (size,) = _SIZE.unpack_from(view, position)
        position += 4
        if not 0 <= size <= end - position:
            raise CorruptRecords(f"snappy: a block of {size} bytes, {end - position} are left")
        out.append(_block(view[position : position + size], total, bytes_max, work))
        total += len(out[-1])
        position += size
    return b"".join(out)


def _block(block: memoryview, total: int, bytes_max: int, work: Work | None) -> bytes:
    """One raw block behind ``total`` bytes; its claim is checked before anything is allocated."""
    try:
        claimed = cramjam.snappy.decompress_raw_len(block)
        if claimed > EXPANSION_MAX * len(block):
            raise CorruptRecords(f"snappy: {len(block)} bytes claim to hold {claimed}")
        if total + claimed > bytes_max:
            raise ExpandsTooFar("snappy", bytes_max)
        if work is not None:
            work.take(BLOCK_STEPS + decompression_steps(SNAPPY, claimed))
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptRecords(f"snappy: {error}") from error
