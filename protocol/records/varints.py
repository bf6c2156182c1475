"""Numbers of variable length, as records of magic 2 hold them.

Zig-zag, then groups of seven bits, least significant first, high bit set on all but the last:
0 is 00, -1 is 01, 1 is 02, 63 is 7e, 64 is 80 01. Source: docs/spec/log.md §1.5.
"""

from __future__ import annotations

from typing import Final

from .corrupt_records import CorruptRecords

VARINT_BYTES_MAX: Final = 5
VARLONG_BYTES_MAX: Final = 10


def encode_varint(value: int) -> bytes:
    """The bytes of ``value``, which fits 64 bits; one encoding serves varint and varlong."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


SMALL: Final = tuple(map(encode_varint, range(1024)))
"""The encodings of 0..1023: lengths and deltas of nearly every record."""

SMALL_COUNT: Final = len(SMALL)


def decode_varint(
    data: bytes | bytearray | memoryview, position: int, bytes_max: int = VARINT_BYTES_MAX
) -> tuple[int, int]:
    """The number at ``position`` and the position after it.

    Raises CorruptRecords past ``bytes_max`` bytes, IndexError at the end of ``data``.
    """
    rest = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = data[position]
        position += 1
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            bits = 32 if bytes_max == VARINT_BYTES_MAX else 64
            rest &= (1 << bits) - 1
            return (rest >> 1) ^ -(rest & 1), position
    raise CorruptRecords(f"a number of more than {bytes_max} bytes at {position - bytes_max}")
