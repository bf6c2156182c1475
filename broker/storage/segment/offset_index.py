"""The offset index of one segment: which byte of the log to start looking for an offset at.

    entry:  | offset - base  int32 | position in the .log  int32 |      strictly increasing

An entry (o, p) says that the append starting at byte p ends with offset o. The file is rewritten
from memory when the segment is flushed and may be rebuilt from the log at any time.
Source: docs/spec/log.md §2.3.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Final

ENTRY_BYTES: Final = 8
_POSITION: Final = 0xFFFF_FFFF


class OffsetIndex:
    """Entries in memory, each one integer: offset in the upper half, position in the lower.

    Offsets are relative to the segment's base throughout.
    """

    __slots__ = ("_entries", "saved")

    def __init__(self, data: bytes = b"") -> None:
        """From the bytes of a file whose size is a multiple of 8."""
        assert len(data) % ENTRY_BYTES == 0
        self._entries = array("q", data)
        if sys.byteorder == "little":
            self._entries.byteswap()
        self.saved = len(self._entries)
        """How many entries the file is known to hold."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def last_offset(self) -> int:
        """Of the last entry; -1 when there is none."""
        return self._entries[-1] >> 32 if self._entries else -1

    def add(self, offset: int, position: int) -> None:
        """Append an entry; both must exceed the last one's."""
        assert not self._entries or (
            offset > self._entries[-1] >> 32 and position > self._entries[-1] & _POSITION
        )
        self._entries.append(offset << 32 | position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """The greatest entry not above ``offset``, as (offset, position); (0, 0) when none is."""
        index = bisect_right(self._entries, offset << 32 | _POSITION) - 1
        if index < 0:
            return 0, 0
        entry = self._entries[index]
        return entry >> 32, entry & _POSITION

    def position_below(self, position: int) -> int:
        """The greatest indexed position not above ``position``; 0 when none is."""
        index = bisect_right(self._entries, position, key=lambda entry: entry & _POSITION) - 1
        return self._entries[index] & _POSITION if index >= 0 else 0

    def offset_from(self, position: int) -> int | None:
        """Of the first entry whose position is ``position`` or greater; None when none is."""
        index = bisect_left(self._entries, position, key=lambda entry: entry & _POSITION)
        return self._entries[index] >> 32 if index < len(self._entries) else None

    def truncate(self, offset: int) -> None:
        """Drop the entries at ``offset`` or above it."""
        del self._entries[bisect_left(self._entries, offset << 32) :]
        self.saved = min(self.saved, len(self._entries))

    def is_plausible(self, offsets: int, log_bytes: int) -> bool:
        """Whether the entries increase and stay below the segment's end."""
        if not self._entries:
            return True
        last = self._entries[-1]
        if self._entries[0] < 0 or last >> 32 >= offsets or last & _POSITION >= log_bytes:
            return False
        return all(
            one >> 32 < two >> 32 and one & _POSITION < two & _POSITION
            for one, two in pairwise(self._entries)
        )

    def to_bytes(self, first: int = 0) -> bytes:
        """The entries from the ``first`` one on, as the file holds them."""
        entries = self._entries[first:]
        if sys.byteorder == "little":
            entries.byteswap()
        return entries.tobytes()
