"""Transaction indexes of a log that is being loaded: what is missing or wrong is found again.

An index below the recovery point was fsynced and is only compared with the batches that it names:
it has no checksum. Above it the batches say what was aborted.
Source: docs/spec/log.md §2.5, §3.3 step 3 and §3.4.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection, Generator, Sequence
from typing import Final

from barnabas.broker.storage.producers.producer_replay import find_aborted
from barnabas.broker.storage.producers.producer_snapshots import ProducerSnapshots
from barnabas.broker.storage.segment.batch_headers import BatchHeader, CorruptEntry
from barnabas.broker.storage.segment.segment import Segment
from barnabas.broker.storage.segment.transaction_index import (
    SUFFIX,
    AbortedTransaction,
    BadTransactionIndex,
)
from barnabas.protocol.records.header import CONTROL, INT64_MAX, TRANSACTIONAL

log = logging.getLogger(__name__)

_SLICE_ENTRIES: Final = 200


class TransactionRecovery:
    """What is known to be lost of the transaction indexes of one log."""

    def __init__(self) -> None:
        self._lost: dict[Segment, int] = {}
        self._counts: dict[Segment, int] = {}
        """Of entries in the file."""

    def open(self, segment: Segment, names: Collection[str]) -> None:
        """Load the index if the directory holds one; ``names`` are the files in it."""
        index = segment.indexes.transactions
        if segment.path(SUFFIX).name not in names:
            index.mark_missing()
            return
        try:
            index.load()
            self._counts[segment] = len(index)
        except BadTransactionIndex as bad:
            log.warning("lost a transaction index path=%s: %s", segment.path(SUFFIX), bad)
            self._lost[segment] = segment.base_offset

    def check(self, segment: Segment, upper: int) -> None:
        """The segment ends below ``upper``: so must its markers."""
        index = segment.indexes.transactions
        markers = [transaction.last_offset for transaction in index]
        if markers and not (segment.base_offset <= markers[0] and markers[-1] < upper):
            log.warning("lost a transaction index path=%s: of another", segment.path(SUFFIX))
            index.truncate(0)
            self._lost[segment] = segment.base_offset

    def verified(self, segment: Segment, trusted: int, upper: int, *, has_markers: bool) -> None:
        """The segment was recovered from the offset ``trusted`` on and ends at ``upper``.

        ``has_markers`` says whether what was verified holds a control batch.
        """
        self.check(segment, INT64_MAX)
        first, index = max(trusted, segment.base_offset), segment.indexes.transactions
        index.truncate(min(first, upper))
        if len(index) < self._counts.get(segment, 0):
            # Of what was not durable, or of what was and has another number now: not told apart.
            index.truncate(0)
            self._lost[segment] = segment.base_offset
        elif has_markers:
            self._lost.setdefault(segment, first)

    def find(
        self, segments: Sequence[Segment], snapshots: ProducerSnapshots, start: int, end: int
    ) -> Generator[None, None, list[Segment]]:
        """Find again what was lost in a log of these bounds; returns the segments completed."""
        yield from self._compare(segments, end)
        lost = {segment: self._lost[segment] for segment in segments if segment in self._lost}
        yield from find_aborted(segments, snapshots, start, end, lost)
        return list(lost)

    def _compare(self, segments: Sequence[Segment], end: int) -> Generator[None, None, None]:
        """Drop an index that names batches of others: readers would see aborted records."""
        for segment in segments:
            index = segment.indexes.transactions
            for count, transaction in enumerate(index, start=1):
                if transaction.last_offset >= end or not _fits(transaction, segments):
                    log.warning(
                        "lost a transaction index path=%s: %s is not in the log",
                        *(segment.path(SUFFIX), transaction),
                    )
                    index.truncate(0)
                    self._lost[segment] = segment.base_offset
                    break
                if count % _SLICE_ENTRIES == 0:
                    yield


def _fits(one: AbortedTransaction, segments: Sequence[Segment]) -> bool:
    """Whether the batches that an entry names are of such a transaction.

    What cannot be found was compacted, deleted or damaged, and says nothing.
    """
    marker = _batch_at(segments, one.last_offset)
    if marker and not (marker.attributes & CONTROL and marker.producer_id == one.producer_id):
        return False
    first = _batch_at(segments, one.first_offset)
    if first and not (_begins(first, one.first_offset) and first.producer_id == one.producer_id):
        return False
    if one.last_stable_offset == one.last_offset + 1:
        return True
    other = _batch_at(segments, one.last_stable_offset)  # where one begins that was still open
    return other is None or (
        _begins(other, one.last_stable_offset) and other.producer_id != one.producer_id
    )


def _begins(batch: BatchHeader, offset: int) -> bool:
    kind = batch.attributes & (TRANSACTIONAL | CONTROL)
    return batch.base_offset == offset and kind == TRANSACTIONAL


def _batch_at(segments: Sequence[Segment], offset: int) -> BatchHeader | None:
    """The batch that holds an offset, None when there is none that can be read."""
    index = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if index < 0:
        return None
    try:
        span = segments[index].find_now(offset)
        if span is None:
            return None
        entry = next(segments[index].entries(span.position), None)
    except CorruptEntry:
        return None
    return entry if entry and entry.base_offset <= offset <= entry.last_offset else None
