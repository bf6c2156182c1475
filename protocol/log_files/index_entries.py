"""The entries of offset and time index files, as they stand.

    .index      | offset - base int32 | position int32 |
    .timeindex  | timestamp int64     | offset - base int32 |

Nothing is checked but that entries are whole: an index is a hint and may be made anew from the
log. Source: docs/spec/log.md §2.3 and §2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")


class OffsetEntry(NamedTuple):
    """The append at ``position`` ends with ``offset``, which is absolute."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """Every record later than ``timestamp`` comes after ``offset``, which is absolute."""

    timestamp: int
    offset: int


def offset_entries(data: bytes, base_offset: int) -> Iterator[OffsetEntry]:
    """The whole entries of an offset index; a cut one at the end is left out."""
    whole = len(data) - len(data) % OFFSET_ENTRY.size
    for relative, position in OFFSET_ENTRY.iter_unpack(memoryview(data)[:whole]):
        yield OffsetEntry(base_offset + relative, position)


def time_entries(data: bytes, base_offset: int) -> Iterator[TimeEntry]:
    """The whole entries of a time index; a cut one at the end is left out."""
    whole = len(data) - len(data) % TIME_ENTRY.size
    for timestamp, relative in TIME_ENTRY.iter_unpack(memoryview(data)[:whole]):
        yield TimeEntry(timestamp, base_offset + relative)
