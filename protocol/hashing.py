"""The hashes that clients and brokers must agree on, bit for bit.

Source: docs/spec/cluster.md §4; docs/spec/coordinator.md §7.2.
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack_from
from typing import Final

_WORD: Final = 0xFFFFFFFF
MURMUR2_FACTOR: Final = 0x5BD1E995
MURMUR2_SEED: Final = 0x9747B28C
REMEMBERED_LENGTH_MAX: Final = 256
"""Longer names of groups are not kept: 16,384 of the longest would take half a gigabyte."""


def java_hash(text: str) -> int:
    """``String.hashCode``: over UTF-16 code units, signed 32 bits."""
    data = text.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for unit in unpack_from(f">{len(data) // 2}H", data):
        hashed = (31 * hashed + unit) & _WORD
    return _signed(hashed)


def java_bytes_hash(data: bytes) -> int:
    """``Arrays.hashCode`` of a byte array, signed 32 bits."""
    hashed = 1
    for byte in memoryview(data).cast("b"):
        hashed = (31 * hashed + byte) & _WORD
    return _signed(hashed)


def java_long_hash(number: int) -> int:
    """``Long.hashCode``: both halves of 64 bits in one, signed 32 bits."""
    return _signed((number ^ number >> 32) & _WORD)


def hash_partition(hashed: int, count: int) -> int:
    """Where a signed hash belongs, of ``count`` places: for groups and for the classic producer.

    Kafka's absolute value of the smallest number is 0; a mask of the sign bit would be wrong.
    """
    return 0 if hashed == -(1 << 31) else abs(hashed) % count


def group_partition(group: str, count: int) -> int:
    """The partition of ``__consumer_offsets`` a group belongs to, of ``count`` there are."""
    if len(group) > REMEMBERED_LENGTH_MAX:
        return hash_partition(java_hash(group), count)
    return _remembered_partition(group, count)


@lru_cache(maxsize=16_384)
def _remembered_partition(group: str, count: int) -> int:
    return hash_partition(java_hash(group), count)


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, signed: how producers spread keys."""
    length = len(data)
    hashed = MURMUR2_SEED ^ length
    words = length >> 2
    for word in unpack_from(f"<{words}I", data):
        mixed = word * MURMUR2_FACTOR & _WORD
        mixed ^= mixed >> 24
        hashed = (hashed * MURMUR2_FACTOR & _WORD) ^ (mixed * MURMUR2_FACTOR & _WORD)
    tail = data[words * 4 :]
    if tail:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * MURMUR2_FACTOR & _WORD
    hashed ^= hashed >> 13
    hashed = hashed * MURMUR2_FACTOR & _WORD
    hashed ^= hashed >> 15
    return _signed(hashed)


def keyed_partition(key: bytes, count: int) -> int:
    """The partition of a key, among all ``count`` partitions, available or not."""
    return (murmur2(key) & 0x7FFFFFFF) % count


def _signed(word: int) -> int:
    return word - (1 << 32) if word > 0x7FFFFFFF else word
