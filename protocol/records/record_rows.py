"""Records whose keys have one length and whose values have one length, made by columns.

Records of such a kind differ in their offset deltas and in some bytes of key and value. One of
them is written out and repeated; then each byte that differs is put into all of them at once.
Source: docs/spec/log.md §1.5, drawn in record.py; protocol/strided.py for the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.protocol.strided import Column, fill

from .varints import SMALL, SMALL_COUNT, encode_varint

_DELTA_ENDS: Final = (1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 34)
"""Below these an offset delta takes 1, 2, 3, 4, 5 bytes."""

Place = tuple[int, Column]
"""Where a column goes, in bytes from the begin of the key, or of the value."""


class RecordRows:
    """``count`` records like that of ``key`` and ``value``, but for the columns."""

    __slots__ = ("count", "key", "key_columns", "value", "value_columns")

    def __init__(
        self,
        key: bytes,
        value: bytes,
        count: int,
        key_columns: Sequence[Place],
        value_columns: Sequence[Place],
    ) -> None:
        self.key = key
        self.value = value
        self.count = count
        self.key_columns = key_columns
        self.value_columns = value_columns

    def encoded(self, first: int) -> Iterator[bytes | bytearray]:
        """The records in pieces, the first of them at offset delta ``first``."""
        for done, count in runs_of_deltas(first, self.count):
            yield self._run(first, done, count)

    def _run(self, first: int, done: int, count: int) -> bytearray:
        """``count`` records behind ``done`` others, whose deltas take the same number of bytes."""
        start = first + done
        delta = encode_varint(start)
        before_key = b"\0\0" + delta + encode_varint(len(self.key))
        before_value = encode_varint(len(self.value))
        body = before_key + self.key + before_value + self.value + b"\0"
        length = encode_varint(len(body))
        stride = len(length) + len(body)
        rows = bytearray((length + body) * count)
        deltas = Column(_deltas(start, count), 0, len(delta), len(delta))
        fill(rows, len(length) + 2, stride, deltas)
        key_at = len(length) + len(before_key)
        for position, column in self.key_columns:
            fill(rows, key_at + position, stride, column, done)
        value_at = key_at + len(self.key) + len(before_value)
        for position, column in self.value_columns:
            fill(rows, value_at + position, stride, column, done)
        return rows


def runs_of_deltas(first: int, count: int) -> Iterator[tuple[int, int]]:
    """``count`` records from offset delta ``first`` on, by how many bytes their deltas take.

    Yields how many were before, and how many these are.
    """
    done = 0
    for end in _DELTA_ENDS:
        alike = min(first + count, end) - first - done
        if alike > 0:
            yield done, alike
            done += alike


def _deltas(start: int, count: int) -> bytes:
    if start + count <= SMALL_COUNT:
        return b"".join(SMALL[start : start + count])
    return b"".join(map(encode_varint, range(start, start + count)))
