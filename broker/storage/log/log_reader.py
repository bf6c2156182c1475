"""Reading batches: from the one that holds an offset, up to a bound.

Source: docs/spec/log.md §6.1 and §6.2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.broker.storage.segment.batch_headers import Span
from barnabas.broker.storage.segment.segment import Segment

from .segments import SegmentView

T = TypeVar("T")

CHECKED_BYTES_MAX: Final = 4 << 20
"""Read at once where headers may have to be looked at: 10 ms with batches of 500 bytes."""


def read_batches(
    view: SegmentView,
    offset: int,
    *,
    end: int,
    log_end: int,
    bytes_max: int,
    at_least_one: bool,
    take: Callable[[Segment, int, int], T],
) -> T | bytes:
    """Whole batches of one segment, none of which holds ``end`` or more.

    They are handed out as ``take`` makes them of a segment, a position and a count of bytes.
    ``offset`` < ``end`` <= ``log_end``. Raises CorruptEntry.
    """
    assert offset < end <= log_end
    index = max(0, view.floor(offset))
    while index < len(view.segments):
        segment = view.segments[index]
        if segment.base_offset >= end:
            break
        first = segment.find(offset)
        if first is not None:
            if view.upper(index, log_end) <= end:
                segment.hint(end, limit := segment.size)
            else:
                limit = _limit(segment, end)
            limit = segment.gaps.readable_end(first.position, limit)
            is_old = first.position < segment.checked.end
            if is_old:
                bytes_max = min(bytes_max, CHECKED_BYTES_MAX)
            count = _count(segment, first, limit - first.position, bytes_max, at_least_one)
            if is_old and count:
                end_position = first.position + count
                segment.check_offsets(first.position, end_position, view.upper(index, log_end))
            return take(segment, first.position, count) if count else b""
        index += 1
    return b""


def _limit(segment: Segment, end: int) -> int:
    """The position before which every batch ends below ``end``."""
    beyond = segment.gaps.at(end) or segment.find(end)
    return segment.size if beyond is None else beyond.position


def _count(segment: Segment, first: Span, count: int, bytes_max: int, at_least_one: bool) -> int:
    """How many of ``count`` readable bytes to take, ``first`` being the batch they begin with."""
    if count <= bytes_max:
        return max(0, count)
    if first.size <= bytes_max:
        return segment.whole_batches(first.position, bytes_max) - first.position
    return first.size if at_least_one else 0
