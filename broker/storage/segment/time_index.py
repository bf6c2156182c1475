"""The time index of one segment: which offset to start looking for a timestamp at.

    entry:  | timestamp  int64 | offset - base  int32 |                     increasing

An entry (t, o) says that every record with a timestamp above t comes after offset o. It is kept
for whole batches: o is the last offset of the earliest batch that reached t.
Source: docs/spec/log.md §2.4.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from itertools import pairwise
from typing import Final

ENTRY_BYTES: Final = 12
_ENTRY: Final = struct.Struct(">qi")


class TimeIndex:
    """Entries in memory; offsets are relative to the segment's base."""

    __slots__ = ("_offsets", "_timestamps", "saved")

    def __init__(self, data: bytes = b"") -> None:
        """From the bytes of a file whose size is a multiple of 12."""
        assert len(data) % ENTRY_BYTES == 0
        entries = list(_ENTRY.iter_unpack(data))
        self._timestamps = array("q", [timestamp for timestamp, _ in entries])
        self._offsets = array("q", [offset for _, offset in entries])
        self.saved = len(entries)
        """How many entries the file is known to hold."""

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; (-1, 0) when there is none."""
        return (self._timestamps[-1], self._offsets[-1]) if self._timestamps else (-1, 0)

    def add(self, timestamp: int, offset: int) -> None:
        """Append an entry unless the last one's timestamp is as great already."""
        if timestamp > self.last[0]:
            assert offset >= self.last[1]
            self._timestamps.append(timestamp)
            self._offsets.append(offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The greatest entry not above ``timestamp``, as (timestamp, offset); else (-1, 0)."""
        index = bisect_right(self._timestamps, timestamp) - 1
        return (self._timestamps[index], self._offsets[index]) if index >= 0 else (-1, 0)

    def truncate(self, offset: int) -> None:
        """Drop the entries at ``offset`` or above it."""
        keep = len(self._offsets)
        while keep and self._offsets[keep - 1] >= offset:
            keep -= 1
        del self._offsets[keep:]
        del self._timestamps[keep:]
        self.saved = min(self.saved, keep)

    def is_plausible(self, offsets: int) -> bool:
        """Whether the entries increase and stay below the segment's end."""
        if not self._offsets:
            return True
        if self._offsets[0] < 0 or self._offsets[-1] >= offsets:
            return False
        return all(one < two for one, two in pairwise(self._timestamps)) and all(
            one <= two for one, two in pairwise(self._offsets)
        )

    def to_bytes(self, first: int = 0) -> bytes:
        """The entries from the ``first`` one on, as the file holds them."""
        pairs = zip(self._timestamps[first:], self._offsets[first:], strict=True)
        return b"".join(_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs)
