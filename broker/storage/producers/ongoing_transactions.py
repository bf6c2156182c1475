"""Which transactions of a partition are open, and which have ended but not yet for good.

Readers of committed records stop at the first offset of either kind: a marker above the high
watermark may still be lost. Source: docs/spec/log.md §7.1 and §7.3.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from barnabas.protocol.errors import Refused
from barnabas.protocol.records.batch import Buffer, records
from barnabas.protocol.records.control import Marker, coordinator_epoch, parse_marker

NO_TRANSACTION: Final = -1

_MARKER: Final = Struct(">qiibIhiqqqhii5shhBhiB")
"""A whole control batch as Kafka and we write it: one record, no codec, no headers."""
_LENGTH: Final = _MARKER.size - 12
_RECORD_FRONT: Final = b"\x20\x00\x00\x00\x08"
"""16 bytes, no attributes, no differences of time and offset, a key of 4 bytes."""
_VALUE_FRONT: Final = 12
"""6 bytes."""
_CODEC: Final = 7
_ENDS: Final = (Marker.ABORT, Marker.COMMIT)


class Ending(NamedTuple):
    """What a marker says."""

    marker: Marker
    coordinator_epoch: int


def ending_in(control_batch: Buffer) -> Ending | None:
    """The marker in a control batch; None when it has no record left, or none that we know."""
    # Each marker is looked at before it is appended and after: a transaction of 100 partitions
    # spent a tenth of its time in reading its own markers as records.
    if len(control_batch) == _MARKER.size:
        fields = _MARKER.unpack_from(control_batch)
        if (
            fields[1] == _LENGTH
            and fields[3] == 2
            and not fields[5] & _CODEC
            and fields[12] == 1
            and fields[13] == _RECORD_FRONT
            and fields[16] == _VALUE_FRONT
            and not fields[19]
        ):
            kind = fields[15]
            return Ending(_ENDS[kind], fields[18]) if 0 <= kind < len(_ENDS) else None
    return ending_in_any(control_batch)


def ending_in_any(control_batch: Buffer) -> Ending | None:
    """The same of a batch of any form: a later Kafka may put more into a marker."""
    try:
        for record in records(control_batch):
            marker = parse_marker(record.key)
            return None if marker is None else Ending(marker, coordinator_epoch(record.value))
    except Refused:
        pass  # what a transaction's end is to readers, no damage is
    return None


class OngoingTransactions:
    """First offsets of the transactions of one partition, by producer id."""

    __slots__ = ("_ended", "_open")

    def __init__(self, first_offsets: Mapping[int, int] | None = None) -> None:
        self._open = dict(sorted((first_offsets or {}).items(), key=lambda pair: pair[1]))
        """In order of offsets: whoever begins later does so behind all others."""
        self._ended: list[tuple[int, int]] = []
        """A heap of (first offset, offset of the marker)."""

    def __bool__(self) -> bool:
        return bool(self._open or self._ended)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """A transaction is open from ``first_offset`` on."""
        self._open[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int) -> None:
        """It is over once ``marker_offset`` is committed."""
        heapq.heappush(self._ended, (self._open.pop(producer_id), marker_offset))

    def oldest_producer(self) -> int | None:
        """Whose transaction began first of those that are open."""
        return next(iter(self._open), None)

    def stable_after(self, marker_offset: int) -> int:
        """The first offset of those open, else the one after the marker that ended the last."""
        return next(iter(self._open.values()), marker_offset + 1)

    def settle(self, high_watermark: int) -> None:
        """Forget what ended below the mark, which never falls unless the log is cut."""
        while self._ended and self._ended[0][1] < high_watermark:
            heapq.heappop(self._ended)

    def first_unstable(self, high_watermark: int) -> int | None:
        """Where the earliest transaction begins that is open, or ended at the mark or above it."""
        self.settle(high_watermark)
        ended = self._ended
        first = next(iter(self._open.values()), None)
        if ended and (first is None or ended[0][0] < first):
            return ended[0][0]
        return first
