"""Entry headers read from a segment: sizes, offsets and what recovery notes of a batch.

Payloads are jumped over and checksums are not looked at: recovery does that.
Source: docs/spec/log.md §1.1 to §1.4; the fields are drawn in protocol/records/header.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from barnabas.protocol.records.batch import SIZES_MIN, max_timestamp
from barnabas.protocol.records.header import ENVELOPE_BYTES, HEADER, HEADER_BYTES, MAGIC_AT

Read = Callable[[int, int], bytes]
"""Reads (position, count): fewer bytes only at the end."""

Buffer = bytes | bytearray | memoryview

_HEAD: Final = struct.Struct(">qiiBIhi")
_ENVELOPE: Final = struct.Struct(">qi")
_IMPOSSIBLE: Final = 2**31
_CHUNK_BYTES: Final = 8192


class CorruptEntry(Exception):  # noqa: N818 - what was found, not what went wrong here
    """Bytes that cannot be an entry."""

    def __init__(self, position: int, why: str) -> None:
        super().__init__(f"position={position}: {why}")
        self.position = position


class Quarantined(CorruptEntry):
    """Bytes that are known to be damaged, and were reported."""


class Span(NamedTuple):
    """Where an entry lies, and which offsets it holds."""

    position: int
    size: int
    base_offset: int
    """Below magic 2 the same as ``last_offset``, which alone is stored."""
    last_offset: int


class BatchHeader(NamedTuple):
    """What a header says; producer fields are -1 and attributes 0 below magic 2."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int = -1
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1


def spans(read: Read, position: int, end: int) -> Iterator[Span]:
    """Each entry from ``position`` to ``end``.

    Reads chunks and jumps over payloads. Raises CorruptEntry where no whole entry can be, or one
    that does not begin behind the one before: no checksum covers offsets.
    """
    chunk, chunk_start = b"", position
    previous = -1
    head = _HEAD
    while position < end:
        at = position - chunk_start
        if at + head.size > len(chunk):
            chunk = read(position, min(_CHUNK_BYTES, end - position)).ljust(head.size, b"\0")
            chunk_start, at = position, 0
        offset, length, _, magic, _, _, delta = head.unpack_from(chunk, at)
        size = length + ENVELOPE_BYTES
        size_min = SIZES_MIN[magic] if magic <= 2 else _IMPOSSIBLE
        if length < size_min or position + size > end:
            raise CorruptEntry(position, f"{length} bytes of magic {magic} end={end}")
        last_offset = offset + delta if magic == 2 else offset
        if not previous < offset <= last_offset:
            raise CorruptEntry(position, f"offsets {offset}..{last_offset} after {previous}")
        previous = last_offset
        yield Span(position, size, offset, last_offset)
        position += size


def header_at(data: Buffer, at: int = 0, position: int = 0) -> BatchHeader:
    """The header at ``place``, which must be that of a plausible entry; ``position`` is noted."""
    if data[at + MAGIC_AT] < 2:
        offset, length = _ENVELOPE.unpack_from(data, at)
        size = length + ENVELOPE_BYTES
        return BatchHeader(position, size, offset, offset, max_timestamp(data, at))
    fields = HEADER.unpack_from(data, at)
    offset, length, epoch, _, _, attributes, delta, _, timestamp = fields[:9]
    size = length + ENVELOPE_BYTES
    return BatchHeader(
        position, size, offset, offset + delta, timestamp, epoch, attributes, *fields[9:12]
    )


def entries(read: Read, position: int, end: int) -> Iterator[BatchHeader]:
    """As :func:`spans`, with all that the headers say."""
    for span in spans(read, position, end):
        header = read(span.position, min(span.size, HEADER_BYTES))
        yield header_at(header, 0, span.position)
