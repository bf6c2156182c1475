"""Entries of a log turned into rows: decompressed, cut to a range, aborted transactions left out.

Source: docs/spec/pipeline.md §5 (network reads); docs/spec/log.md §1.4 to §1.6 and §7.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from barnabas.client.cluster import TopicPartition
from barnabas.protocol.records import batch
from barnabas.protocol.records.columns import Numbers, Section, columns, section_at
from barnabas.protocol.records.control import Marker, parse_marker
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import CONTROL, TRANSACTIONAL, Header

from .rows import ROWS_PER_BATCH, Rows

BYTES_PER_BATCH: Final = 64 << 20
"""Rows are handed on when they hold so many bytes, however few they are."""


class Aborted(NamedTuple):
    """A transaction that was aborted: what its producer wrote from this offset to the marker."""

    producer_id: int
    first_offset: int


class Unpacker:
    """Gathers rows of one partition from entry after entry, in the order of the log.

    Records below ``start``, and from ``end`` on, are left out. ``needs_records`` False spares
    all work where headers tell the offsets, which are then all that rows hold.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        start: int,
        end: int,
        *,
        needs_records: bool = True,
        aborted: Iterable[Aborted] | None = None,
        is_verified: bool = False,
    ) -> None:
        """``aborted`` None shows everything; otherwise transactions in it are hidden.

        ``is_verified`` says that somebody has looked at the checksums.
        """
        self.topic_partition = topic_partition
        self.next_offset = start
        """Where to read on: one more than the last offset of the last entry taken."""
        self._start = start
        self._end = end
        self._needs_records = needs_records
        self._is_verified = is_verified
        self._sections: list[Section] = []
        self._is_cut = False
        """Whether any of them reaches beyond the range."""
        self._offsets: list[Numbers] = []
        """Instead of sections, where offsets are all that is needed."""
        self._count = 0
        self._bytes = 0
        self._hides = aborted is not None
        self._pending = sorted(
            aborted or (), key=lambda transaction: transaction.first_offset, reverse=True
        )
        self._open: set[int] = set()

    def expect(self, aborted: Iterable[Aborted] | None) -> None:
        """Take a new list of aborted transactions, that of the answer whose entries come next."""
        self._pending = sorted(
            aborted or (), key=lambda transaction: transaction.first_offset, reverse=True
        )
        self._open.clear()

    def take(self, data: batch.Buffer, position: int) -> Rows | None:
        """Gather the entry at ``position``; the rows so far when they are enough for a batch.

        Raises CorruptRecords when its checksum is wrong or its records cannot be read.
        """
        size = batch.size(data, position)
        if batch.last_offset(data, position) < self._start:
            return None
        if not self._is_verified and not batch.crc_is_valid(data, position, size):
            raise CorruptRecords(f"checksum of the batch at {batch.base_offset(data, position)}")
        if batch.magic(data, position) < 2:
            self._gather(section_at(data, position), is_whole=False)
        else:
            self._take_batch(data, position)
        self.next_offset = batch.next_offset(data, position)
        is_full = self._count >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH
        return self.drain() if is_full else None

    def drain(self) -> Rows | None:
        """What was gathered since the last time; None when that is nothing."""
        offsets, sections = self._offsets, self._sections
        is_cut = self._is_cut
        self._offsets, self._sections = [], []
        self._count, self._bytes, self._is_cut = 0, 0, False
        if offsets:
            rows = Rows(np.concatenate(offsets))
        elif sections:
            found = columns(sections)
            rows = Rows.of(found.chosen(self._is_wanted(found.offsets)) if is_cut else found)
        else:
            return None
        return rows if len(rows) else None

    def _take_batch(self, data: batch.Buffer, position: int) -> None:
        head = batch.header(data, position)
        self._note_aborted(head.last_offset)
        if head.attributes & CONTROL:
            self._take_marker(data, position, head)
            return
        if self._is_hidden(head):
            return
        is_whole = head.base_offset >= self._start and head.last_offset < self._end
        is_dense = head.record_count == head.last_offset_delta + 1
        if not self._needs_records and is_whole and is_dense:
            self._offsets.append(np.arange(head.base_offset, head.last_offset + 1))
            self._count += head.record_count
        else:
            self._gather(section_at(data, position), is_whole=is_whole)

    def _gather(self, section: Section, *, is_whole: bool) -> None:
        """Keep the records of one entry until they are enough."""
        if self._needs_records:
            self._sections.append(section)
            self._bytes += len(section.data)
            self._is_cut |= not is_whole
        else:
            offsets = columns([section]).offsets
            self._offsets.append(offsets[self._is_wanted(offsets)])
        self._count += section.count

    def _is_wanted(self, offsets: Numbers) -> NDArray[np.bool_]:
        return (offsets >= self._start) & (offsets < self._end)

    def _take_marker(self, data: batch.Buffer, position: int, head: Header) -> None:
        for record in batch.records(data, position):
            if parse_marker(record.key) is Marker.ABORT:
                self._open.discard(head.producer_id)

    def _note_aborted(self, last_offset: int) -> None:
        """Take up the transactions that have begun by now.

        Before a marker, too: where reading starts at the marker, it ends what began before.
        """
        while self._pending and self._pending[-1].first_offset <= last_offset:
            self._open.add(self._pending.pop().producer_id)

    def _is_hidden(self, head: Header) -> bool:
        if not self._hides:
            return False
        return bool(head.attributes & TRANSACTIONAL) and head.producer_id in self._open
