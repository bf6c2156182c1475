"""One flipped bit of a batch, found and turned back.

The checksum of a batch is linear: what one flipped bit does to it tells which bit it was, up to
2^31 bits (CRC-32C). What the checksum does not cover, offset, size and magic, is tried
bit by bit; offsets must then fit between those of the neighbours. That damage of another
kind looks like one flipped bit has a chance of (bits of the batch) / 2^32, hence ``BYTES_MAX``,
and hence only a person decides on it: ``barnabas log repair``.
Source: docs/spec/log.md §1.2 (what the checksum covers).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from crc32c import crc32c

from . import batch
from .corrupt_records import CorruptRecords
from .header import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, MAGIC_AT

BYTES_MAX: Final = 1 << 16
"""Of a batch that is mended."""
_POLYNOMIAL: Final = 0x82F63B78
"""Of CRC-32C, reflected."""
_BITS: Final = 8
_UNCOVERED: Final = (*range(12), *range(MAGIC_AT, ATTRIBUTES_AT))
"""Offset, size, magic and the checksum itself. A wrong leader epoch contradicts nothing here."""


class Mended(NamedTuple):
    """A batch as it was."""

    data: bytes
    place: int
    """The byte in which one bit was wrong."""


def mended(data: bytes, first_offset: int, next_offset: int) -> Mended | None:
    """The batch that ``data`` was before one bit of it flipped; None when that is not what it is.

    All offsets between ``first_offset`` and ``next_offset`` are its own, or were compacted away;
    that its own offset was flipped is only believed when it then begins with the first of them.
    """
    if not HEADER_BYTES <= len(data) <= BYTES_MAX:
        return None
    place = _covered_bit(data)
    if place is not None:
        found = _flipped(data, *place)
        return Mended(found, place[0]) if _fits(found, first_offset, next_offset) else None
    for at in _UNCOVERED:
        for bit in range(_BITS):
            found = _flipped(data, at, bit)
            is_placed = at >= 8 or batch.base_offset(found) == first_offset
            if is_placed and _fits(found, first_offset, next_offset):
                return Mended(found, at)
    return None


def _flipped(data: bytes, at: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def _fits(data: bytes, first_offset: int, next_offset: int) -> bool:
    """Whether it is one whole batch within these offsets, down to its last record."""
    if batch.magic(data) != 2 or batch.size(data) != len(data):
        return False
    if not batch.crc_is_valid(data, 0, len(data)) or batch.leader_epoch(data) < -1:
        return False
    if batch.base_offset(data) < first_offset or batch.next_offset(data) > next_offset:
        return False
    try:
        for _ in batch.records(data, 0):
            pass
    except CorruptRecords:
        return False
    return True


def _covered_bit(data: bytes) -> tuple[int, int] | None:
    """Byte and bit, among those that the checksum covers, whose turn makes it right."""
    stored = int.from_bytes(data[CRC_AT:ATTRIBUTES_AT], "big")
    wanted = stored ^ crc32c(memoryview(data)[ATTRIBUTES_AT:])
    if wanted == 0:
        return None
    # What a flipped bit does to the checksum, from the last byte's highest bit backwards: the
    # register holds it when the bit has just gone in, and each bit behind it shifts once more.
    effect = _POLYNOMIAL
    for at in range(len(data) - 1, ATTRIBUTES_AT - 1, -1):
        for bit in range(_BITS - 1, -1, -1):
            if effect == wanted:
                return at, bit
            effect = effect >> 1 ^ (_POLYNOMIAL if effect & 1 else 0)
    return None
