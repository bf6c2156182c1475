"""The five ways a record section can be compressed, by their numbers in the attributes.

Decompression stops as soon as more than ``bytes_max`` bytes would come out, and no length that
the data claims is allocated before it is known to be possible. Source: log.md section 1.7.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

from . import lz4_frames, snappy_streams, zstd_frames
from .failures import CorruptRecords

GZIP_WINDOW_BITS: Final = 31
"""zlib's way of asking for gzip members: 16 more than the window of 2**15 bytes."""

READ_BYTES_MAX: Final = 1 << 30
"""Bound for bytes this cluster validated before it stored them."""


class Codec(IntEnum):
    """A compression; the value is what bits 0-2 of the attributes hold."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


NAMES: Final = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""As ``compression.type`` spells them; "producer" names no codec."""


def produced_bytes_max(message_bytes_max: int) -> int:
    """How much a batch that a client produces may expand to."""
    return max(16 << 20, 32 * message_bytes_max)


def compress(
    codec: int, data: bytes | bytearray | memoryview, level: int | None = None, *, magic: int = 2
) -> bytes:
    """``data`` as the payload of an entry of ``magic``; ``level`` None is the codec's own.

    Magic 0 matters for LZ4 only, whose frames there carry a wrong header checksum (KAFKA-3160).
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, -1 if level is None else level, GZIP_WINDOW_BITS)
        case Codec.SNAPPY:
            return snappy_streams.compress(data)
        case Codec.LZ4:
            return lz4_frames.compress(data, level, is_legacy=magic == 0)
        case Codec.ZSTD:
            assert magic >= 2, "zstd came with magic 2"
            return zstd_frames.compress(data, level)
        case _:
            raise AssertionError(f"codec {codec}")


def decompress(
    codec: int, data: bytes | bytearray | memoryview, *, bytes_max: int, magic: int = 2
) -> bytes:
    """What was compressed; raises CorruptRecords when that is nothing, or over ``bytes_max``."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gunzip(data, bytes_max)
        case Codec.SNAPPY:
            return snappy_streams.decompress(data, bytes_max)
        case Codec.LZ4:
            return lz4_frames.decompress(data, bytes_max, is_legacy=magic == 0)
        case Codec.ZSTD if magic >= 2:
            return zstd_frames.decompress(data, bytes_max)
        case _:
            raise CorruptRecords(f"codec {codec} in an entry of magic {magic}")


def _gunzip(data: bytes | bytearray | memoryview, bytes_max: int) -> bytes:
    """One member after another; Java writes a single one."""
    out = b""
    while True:
        member = zlib.decompressobj(GZIP_WINDOW_BITS)
        try:
            part = member.decompress(data, bytes_max - len(out) + 1)
        except zlib.error as error:
            raise CorruptRecords(f"gzip: {error}") from error
        out = out + part if out else part
        if len(out) > bytes_max:
            raise CorruptRecords(f"gzip: more than {bytes_max} bytes")
        if not member.eof:
            raise CorruptRecords("gzip: the stream ends early")
        data = member.unused_data
        if not data:
            return out
