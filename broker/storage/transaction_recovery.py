"""Transaction indexes of a log that is being loaded: what is missing or wrong is found again.

An index below the recovery point was fsynced and is only looked at; above it the batches say
what was aborted. Source: log.md sections 2.5, 3.3 step 3 and 3.4.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Sequence

from barnabas.protocol.records.header import INT64_MAX

from .producer_replay import find_aborted
from .producer_snapshots import ProducerSnapshots
from .segment import Segment
from .transaction_index import SUFFIX, BadTransactionIndex

log = logging.getLogger(__name__)


class TransactionRecovery:
    """What is known to be lost of the transaction indexes of one log."""

    def __init__(self) -> None:
        self._lost: dict[Segment, int] = {}

    def open(self, segment: Segment, names: Collection[str]) -> None:
        """Load the index if the directory holds one; ``names`` are the files in it."""
        index = segment.indexes.transactions
        if segment.path(SUFFIX).name not in names:
            index.mark_missing()
            return
        try:
            index.load()
        except BadTransactionIndex as bad:
            log.warning("lost a transaction index path=%s: %s", segment.path(SUFFIX), bad)
            self._lost[segment] = segment.base_offset

    def check(self, segment: Segment, upper: int) -> None:
        """The segment ends below ``upper``: so must its markers."""
        index = segment.indexes.transactions
        markers = [each.last_offset for each in index]
        if markers and not (segment.base_offset <= markers[0] and markers[-1] < upper):
            log.warning("lost a transaction index path=%s: of another", segment.path(SUFFIX))
            index.truncate(0)
            self._lost[segment] = segment.base_offset

    def verified(self, segment: Segment, trusted: int, upper: int, *, has_markers: bool) -> None:
        """The segment was recovered from the offset ``trusted`` on and ends at ``upper``.

        ``has_markers`` says whether what was verified holds a control batch.
        """
        self.check(segment, INT64_MAX)
        first = max(trusted, segment.base_offset)
        segment.indexes.transactions.truncate(min(first, upper))
        if has_markers:
            self._lost.setdefault(segment, first)

    def find(
        self, segments: Sequence[Segment], snapshots: ProducerSnapshots, start: int, end: int
    ) -> Generator[None, None, list[Segment]]:
        """Find again what was lost in a log of these bounds; returns the segments completed."""
        lost = {segment: self._lost[segment] for segment in segments if segment in self._lost}
        yield from find_aborted(segments, snapshots, start, end, lost)
        return list(lost)
