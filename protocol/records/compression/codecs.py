"""The five ways a record section can be compressed, by their numbers in the attributes.

Decompression stops as soon as more than ``bytes_max`` bytes would come out, and no length that
the data claims is allocated before it is known to be possible. Source: docs/spec/log.md §1.7.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from typing import Final

from barnabas.protocol.records.corrupt_records import CorruptRecords, ExpandsTooFar
from barnabas.protocol.records.work_limit import (
    GZIP_MEMBER_STEPS,
    TooMuchWork,
    Work,
    decompression_steps,
)

from . import lz4_frames, snappy_streams, zstd_frames

GZIP_WINDOW_BITS: Final = 31
"""zlib's way of asking for gzip members: 16 more than the window of 2**15 bytes."""

GZIP_MAGIC: Final = b"\x1f\x8b\x08"
GZIP_SLICE_BYTES: Final = 512
"""What a further member is given first; twice as much each time it wants more.

zlib copies whatever it was given and did not need: to give it all there is would copy the square
of what many small members take.
"""

GZIP_FRAME_BYTES: Final = 18
"""Header and trailer of a member."""

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
    codec: int,
    data: bytes | bytearray | memoryview,
    level: int | None = None,
    *,
    magic: int = 2,
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
    codec: int,
    data: bytes | bytearray | memoryview,
    *,
    bytes_max: int,
    magic: int = 2,
    work: Work | None = None,
) -> bytes:
    """What was compressed; raises CorruptRecords when that is nothing.

    Raises ExpandsTooFar when it is more than ``bytes_max``, even if damage would follow, and
    TooMuchWork as soon as that takes more than ``work`` has left.
    """
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gunzip(data, bytes_max, work)
        case Codec.SNAPPY:
            return snappy_streams.decompress(data, bytes_max, work)
        case Codec.LZ4:
            return lz4_frames.decompress(data, bytes_max, is_legacy=magic == 0, work=work)
        case Codec.ZSTD if magic >= 2:
            return zstd_frames.decompress(data, bytes_max, work)
        case _:
            raise CorruptRecords(f"codec {codec} in an entry of magic {magic}")


def _gunzip(data: bytes | bytearray | memoryview, bytes_max: int, work: Work | None) -> bytes:
    """One member after another; Java writes a single one.

    What follows the last member and cannot be one is ignored, as java.util.zip does.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    position = total = 0
    slice_bytes = len(view)
    while position == 0 or _is_member(view, position):
        limit = bytes_max - total
        if work is not None:
            work.take(GZIP_MEMBER_STEPS)
            limit = min(limit, work.bytes_left(Codec.GZIP))
        made, position = _member(view, position, slice_bytes, limit, parts)
        total += made
        if total > bytes_max:
            raise ExpandsTooFar("gzip", bytes_max)
        if work is not None:  # taken first: what was made in vain has cost as much
            work.take(decompression_steps(Codec.GZIP, made))
        if made > limit:
            raise TooMuchWork
        slice_bytes = GZIP_SLICE_BYTES
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _is_member(view: memoryview, position: int) -> bool:
    """Whether another member begins here; less than its frame takes is none."""
    return (
        len(view) - position >= GZIP_FRAME_BYTES
        and bytes(view[position : position + 3]) == GZIP_MAGIC
    )


def _member(
    view: memoryview, position: int, slice_bytes: int, limit: int, parts: list[bytes]
) -> tuple[int, int]:
    """Add one member's data to ``parts``; its size, and where the member ends.

    Stops in the middle once it has made more than ``limit`` bytes.
    """
    member = zlib.decompressobj(GZIP_WINDOW_BITS)
    made = 0
    while not member.eof and made <= limit:
        given = view[position : position + slice_bytes]
        if not given:
            raise CorruptRecords("gzip: the stream ends early")
        try:
            part = member.decompress(given, limit - made + 1)
        except zlib.error as error:
            raise CorruptRecords(f"gzip: {error}") from error
        position += len(given) - len(member.unused_data)
        made += len(part)
        parts.append(part)
        slice_bytes *= 2
    return made, position
