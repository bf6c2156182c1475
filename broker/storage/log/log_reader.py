"""Reading one log: batches up to a bound, offsets by time, aborted transactions.

All of it works on one :class:`SegmentView`, which never changes.
Source: docs/spec/log.md §4.4, §6.1, §6.2 and §6.5; §9 pitfalls P31 and P32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

from barnabas.broker.storage.segment.batch_headers import BatchHeader, CorruptEntry, Span
from barnabas.broker.storage.segment.segment import Segment
from barnabas.broker.storage.segment.transaction_index import (
    AbortedTransaction,
    BadTransactionIndex,
    aborted_transactions,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.first_record import first_record
from barnabas.protocol.records.work_limit import TooMuchWork, Work

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


LATEST: Final = -1
EARLIEST: Final = -2


BatchKey = tuple[int, int, int, int]
"""Base offset, leader epoch and size of a batch, and the first offset that counts in it."""


class TimedOffset(NamedTuple):
    """A record found by its time."""

    timestamp: int
    offset: int
    leader_epoch: int
    """Of the batch it is in; -1 when that has none."""


class LongBatch(TooMuchWork):
    """A batch that takes too long to search here, with all that it takes to search it elsewhere."""

    def __init__(self, key: BatchKey, data: bytes, timestamp: int, start: int) -> None:
        super().__init__()
        self.key = key
        self.data = data
        self.timestamp = timestamp
        self.start = start


class Search:
    """What a search in a log may cost, and what was found in batches that cost too much.

    One search, perhaps made several times: whoever catches LongBatch has the batch searched
    elsewhere, notes in ``found`` timestamp and offset, or None, under its key, and asks again.
    """

    __slots__ = ("found", "work")

    def __init__(self, work: Work | None = None) -> None:
        self.work = work
        self.found: dict[BatchKey, tuple[int, int] | None] = {}


def first_at_or_after(
    view: SegmentView, timestamp: int, start: int, end: int, search: Search
) -> TimedOffset | None:
    """The first record in [start, end) whose timestamp is ``timestamp`` or later.

    A segment that compaction emptied goes by the time of its file: it may promise what it lacks.
    """
    for index, segment in enumerate(view.segments):
        if view.upper(index, end) > start and segment.largest_timestamp >= timestamp:
            offset = max(start, segment.indexes.offset_before(timestamp))
            found = _first_in(segment, offset, timestamp, start, end, search)
            if found is not None:
                return found
    return None


def newest(view: SegmentView, start: int, end: int, search: Search) -> TimedOffset | None:
    """The first record in [start, end) that carries the greatest timestamp of the log."""
    chosen = None
    for index, segment in enumerate(view.segments):
        if view.upper(index, end) <= start:
            continue
        if chosen is None or segment.indexes.max_timestamp > chosen.indexes.max_timestamp:
            chosen = segment
    if chosen is None or chosen.indexes.max_timestamp < 0:
        return None
    indexes = chosen.indexes
    timestamp = indexes.max_timestamp
    return _first_in(chosen, indexes.max_timestamp_offset, timestamp, start, end, search)


def _first_in(
    segment: Segment, offset: int, timestamp: int, start: int, end: int, search: Search
) -> TimedOffset | None:
    span = segment.find(offset)
    if span is None:
        return None
    for entry in segment.entries(span.position):
        if entry.base_offset >= end:
            return None
        if entry.max_timestamp >= timestamp:
            found = _first_record(segment, entry, timestamp, start, search)
            if found is not None:
                return found if found.offset < end else None
    return None


def _first_record(
    segment: Segment, entry: BatchHeader, timestamp: int, start: int, search: Search
) -> TimedOffset | None:
    key = (entry.base_offset, entry.leader_epoch, entry.size, start)
    if key in search.found:
        found = search.found[key]
    else:
        data = segment.read(entry.position, entry.size)
        try:
            found = first_record(data, timestamp, start, search.work)
        except TooMuchWork:
            raise LongBatch(key, data, timestamp, start) from None
    return None if found is None else TimedOffset(*found, entry.leader_epoch)


def aborted(view: SegmentView, offset: int, count: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions in ``count`` bytes from the batch that holds ``offset``.

    Raises CorruptEntry also for a transaction index that cannot be read.
    """
    index = max(0, view.floor(offset))
    upper = end
    while index < len(view.segments):
        segment = view.segments[index]
        if first := segment.find(offset):
            behind = segment.indexes.offset_from(first.position + count)
            upper = view.upper(index, end) if behind is None else behind
            break
        index += 1
    try:
        return list(aborted_transactions(view.segments[index:], offset, upper))
    except BadTransactionIndex as bad:
        raise CorruptEntry(0, f"a transaction index: {bad}") from bad


def offsets_before(
    bounds: list[tuple[int, int]], timestamp: int, count: int, high_watermark: int | None
) -> list[int]:
    """Up to ``count`` segment offsets at or before ``timestamp``, descending: ListOffsets v0.

    ``bounds`` are (offset, time of last change in ms), ascending. ``high_watermark`` takes the
    place of all that lies above it, for consumers. Raises Refused for an unknown special time.
    """
    if timestamp < EARLIEST:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp}")
    if timestamp == LATEST:
        index = len(bounds) - 1
    elif timestamp == EARLIEST:
        index = 0
    else:
        index = max((i for i, (_, time) in enumerate(bounds) if time <= timestamp), default=-1)
    offsets = [offset for offset, _ in reversed(bounds[: index + 1])]
    if high_watermark is not None and any(offset > high_watermark for offset in offsets):
        visible = [offset for offset in offsets if offset < high_watermark]
        offsets = [high_watermark, *visible]
    return offsets[:count]
