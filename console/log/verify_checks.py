"""Checks of one segment that go along with its batches, holding none of them.

Each check is told every batch in order and yields (position, reason) for what is wrong: a
position in its own file, None when there is none. Source: docs/spec/log.md §2.3 to §2.7 and §3.4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Protocol

from barnabas.protocol.log_files.aborted_transactions import AbortedTransaction
from barnabas.protocol.log_files.index_entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    OffsetEntry,
    TimeEntry,
    offset_entries,
    time_entries,
)
from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.message_set import checksums
from barnabas.protocol.records.record import Record
from barnabas.protocol.records.walk import Entry

Finding = tuple[int | None, str]


class SegmentCheck(Protocol):
    """What is asked of every batch, and once more at the end."""

    def batch(self, entry: Entry) -> Iterator[Finding]:
        """What ``entry`` shows to be wrong."""

    def end(self) -> Iterator[Finding]:
        """What the end of the segment shows to be wrong."""


class OffsetIndexCheck:
    """Every entry points at a batch that ends with its offset; offsets and positions increase."""

    def __init__(self, data: bytes, base_offset: int) -> None:
        self._data = data
        self._entries = list(offset_entries(data, base_offset))
        self._next = 0

    def batch(self, entry: Entry) -> Iterator[Finding]:
        """Compare the entries up to this batch."""
        while (due := self._due()) is not None and due.position <= entry.position:
            # An index of Kafka 1.1 or older has first offsets.
            known = (entry.last_offset, entry.base_offset)
            if due.position < entry.position:
                yield self._position, f"points at byte {due.position}, where no batch begins"
            elif due.offset not in known:
                yield self._position, f"offset {due.offset} for the batch at {entry.base_offset}"
            self._next += 1

    def _due(self) -> OffsetEntry | None:
        return self._entries[self._next] if self._next < len(self._entries) else None

    @property
    def _position(self) -> int:
        return self._next * OFFSET_ENTRY.size

    def end(self) -> Iterator[Finding]:
        """Whatever is left points beyond the log; the order was not looked at yet."""
        if (due := self._due()) is not None:
            yield self._position, f"points at byte {due.position}, beyond the log"
        for number, (one, two) in enumerate(pairwise(self._entries)):
            if two.offset <= one.offset or two.position <= one.position:
                yield (number + 1) * OFFSET_ENTRY.size, f"{tuple(two)} after {tuple(one)}"
                break
        yield from _cut(self._data, OFFSET_ENTRY.size)


class TimeIndexCheck:
    """An entry has the greatest timestamp up to its offset, reached in the batch of its offset."""

    def __init__(self, data: bytes, base_offset: int) -> None:
        self._data = data
        self._entries = list(time_entries(data, base_offset))
        self._next = 0
        self._newest = -1

    def batch(self, entry: Entry) -> Iterator[Finding]:
        """Compare the entries up to this batch."""
        before, self._newest = self._newest, max(self._newest, entry.max_timestamp)
        while (due := self._due()) is not None and due.offset <= entry.last_offset:
            newest = self._newest if due.offset >= entry.base_offset else before
            if due.timestamp != newest:
                text = f"time {due.timestamp} for offset {due.offset}, the log has {newest}"
                yield self._next * TIME_ENTRY.size, text
            self._next += 1

    def _due(self) -> TimeEntry | None:
        return self._entries[self._next] if self._next < len(self._entries) else None

    def end(self) -> Iterator[Finding]:
        """Whatever is left lies beyond the log; the order was not looked at yet."""
        if (due := self._due()) is not None:
            yield self._next * TIME_ENTRY.size, f"offset {due.offset}, beyond the log"
        for number, (one, two) in enumerate(pairwise(self._entries)):
            if two.timestamp <= one.timestamp or two.offset < one.offset:
                yield (number + 1) * TIME_ENTRY.size, f"{tuple(two)} after {tuple(one)}"
                break
        yield from _cut(self._data, TIME_ENTRY.size)


class AbortedCheck:
    """Every aborted transaction ends with a marker of its producer in this segment."""

    def __init__(self, entries: list[AbortedTransaction], base_offset: int) -> None:
        self._due = {entry.last_offset: entry for entry in entries}
        self._base_offset = base_offset

    def batch(self, entry: Entry) -> Iterator[Finding]:
        """Look whether the batch is a marker that is due."""
        due = self._due.pop(entry.last_offset, None)
        if due is None:
            return
        if not batch.is_control(entry.data) or batch.producer_id(entry.data) != due.producer_id:
            yield None, f"offset {due.last_offset} is no marker of producer {due.producer_id}"

    def end(self) -> Iterator[Finding]:
        """A marker that is not there was compacted away, unless it cannot ever have been."""
        for offset in self._due:
            if offset < self._base_offset:
                yield None, f"offset {offset} is before the segment"


class EpochCheck:
    """Batches were written in the epoch that the checkpoint says."""

    def __init__(self, epochs: list[tuple[int, int]]) -> None:
        self._epochs = epochs
        self._index = 0
        self._reported = -1

    def batch(self, entry: Entry) -> Iterator[Finding]:
        """Compare the batch's epoch, told once for each epoch."""
        epochs = self._epochs
        while self._index < len(epochs) and epochs[self._index][1] <= entry.base_offset:
            self._index += 1
        known = epochs[self._index - 1][0] if self._index else -1
        if entry.leader_epoch < 0 or known < 0 or entry.leader_epoch in (known, self._reported):
            return
        self._reported = entry.leader_epoch
        yield None, f"epoch {known} for offset {entry.base_offset}, its batch has {self._reported}"

    def end(self) -> Iterator[Finding]:
        """Epochs may begin where nothing was written."""
        return iter(())


class RecordCheck:
    """Every record can be read; their number, offsets and times are what their batch says."""

    def __init__(self) -> None:
        self.records = 0

    def batch(self, entry: Entry) -> Iterator[Finding]:
        """Read the records of the batch."""
        try:
            found = list(batch.records(entry.data))
            if entry.magic < 2 and not all(is_valid for _, is_valid in checksums(entry.data)):
                yield entry.position, "checksum of an inner message"
        except CorruptRecords as bad:
            yield entry.position, bad.message
            return
        self.records += len(found)
        for problem in _PROBLEMS:
            if reason := problem(entry, found):
                yield entry.position, reason

    def end(self) -> Iterator[Finding]:
        """Nothing more."""
        return iter(())


def _offsets_problem(entry: Entry, found: list[Record]) -> str:
    offsets = [record.offset for record in found]
    first = entry.base_offset if entry.magic == 2 else 0
    if offsets and not first <= offsets[0] <= offsets[-1] <= entry.last_offset:
        return f"offsets {offsets[0]} to {offsets[-1]} in a batch up to {entry.last_offset}"
    if any(two <= one for one, two in pairwise(offsets)):
        return "offsets of records do not increase"
    return ""


def _count_problem(entry: Entry, found: list[Record]) -> str:
    if not found and entry.magic < 2:
        return "no record"
    return ""


def _times_problem(entry: Entry, found: list[Record]) -> str:
    newest = max((record.timestamp for record in found), default=entry.max_timestamp)
    if newest != entry.max_timestamp:
        return f"greatest timestamp {entry.max_timestamp}, the records have {newest}"
    return ""


_PROBLEMS: tuple[Callable[[Entry, list[Record]], str], ...] = (
    _offsets_problem,
    _count_problem,
    _times_problem,
)


def _cut(data: bytes, entry_bytes: int) -> Iterator[Finding]:
    if extra := len(data) % entry_bytes:
        yield len(data) - extra, "the last entry is cut"
