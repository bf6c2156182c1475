"""One field of many rows of bytes: read out, or put into other rows, with a stride.

What rows of requests (codec/rows.py) and rows of records (records/record_rows.py) have in common.
Source: docs/wire.md, "Rows".
"""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A field of many rows: that of row ``n`` is ``width`` bytes at ``start + n * step``."""

    source: bytes
    start: int
    step: int
    width: int

    def packed(self) -> bytes:
        """The fields of all rows, one behind the other; nothing else may follow the last row."""
        source, start, step, width = self
        out = bytearray(len(source) // step * width)
        for place in range(width):
            out[place::width] = source[start + place :: step]
        return bytes(out)


def fill(rows: bytearray, start: int, step: int, column: Column, first: int = 0) -> None:
    """Put a column into rows of ``step`` bytes, ``start`` bytes behind the begin of each.

    Row ``first`` of the column goes to the first of ``rows``, and as many as there are of them.
    """
    source, begin, stride, width = column
    begin += first * stride
    end = begin + len(rows) // step * stride
    for place in range(width):
        rows[start + place :: step] = source[begin + place : end + place : stride]
