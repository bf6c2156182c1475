"""Making an increment: the committed records since a whole snapshot, gathered from the log.

Nothing of the whole snapshot is read and no record is looked into, so it costs what came since and
not what is kept. Source: docs/spec/coordinator.md §3.4.1.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Final

from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.latest_by_key import Latest, gather, gather_short

from . import incremental_snapshot
from .incremental_snapshot import IncrementHeader
from .ports import INCREMENT, Replica
from .snapshot_files import Captured, base_of, latest_before, saved

KEYS_MAX: Final = 200_000
"""More are better kept in a whole snapshot: an increment is written anew each time."""
BYTES_MAX: Final = 1 << 26
"""Of their keys and values in memory."""
_READ_BYTES: Final = 1 << 17
_KEYS_A_LOOK: Final = 4096


class NotIncremental(Exception):  # noqa: N818 - what it is, not an error
    """What came since cannot be told by the newest record of each key, or is too much.

    Transactions: whether a record counts is said by a marker, and which of two is newer as well.
    Keys of version 0, which nobody has written since 0.9: they stand for the same offset as others.
    """


def capture_increment(replica: Replica) -> Generator[None, None, Captured | None]:
    """What came since the whole snapshot, or since the log start where there is none.

    Yields often. None when there is nothing, or when the log was changed meanwhile. Raises Unfit,
    CorruptRecords and Refused.
    """
    start, cleaned = replica.bounds()[0], replica.cleaned_offset()
    whole, _ = saved(replica)
    base, base_crc = base_of(replica, whole)
    former = yield from latest_before(replica, whole)
    gathered = _Gathered(replica, base)
    if former is not None:
        gathered.go_on(*former)
    yield from gathered.read()
    if replica.cleaned_offset() != cleaned or gathered.leader_epoch < 0:
        return None  # a tombstone may have gone before it was read, and its value was
    header = IncrementHeader(gathered.leader_epoch, start, gathered.position, base, base_crc)
    frames, size = [], 0
    try:
        for frame in incremental_snapshot.frames_of(gathered.latest):
            frames.append(frame)
            size += len(frame)
            if size > BYTES_MAX:
                raise NotIncremental
            yield
    except incremental_snapshot.OldKey as old:
        raise NotIncremental from old
    return Captured(header, partial(incremental_snapshot.sealed, header, frames), INCREMENT)


class _Gathered:
    """The newest record of each key from the base up to ``position``."""

    def __init__(self, replica: Replica, base: int) -> None:
        self.latest: Latest = {}
        self.position = base
        self.leader_epoch = -1
        """Of the record before ``position``; -1 when nothing was read, or in vain."""
        self._replica = replica
        self._log_start = replica.bounds()[0]
        self._held = 0
        """At most so many bytes are in ``latest``."""

    def go_on(self, header: IncrementHeader, body: incremental_snapshot.Gathering) -> None:
        """Begin with what was written before."""
        self.latest = body.latest
        self.position = header.offset
        self.leader_epoch = header.leader_epoch
        self._held = header.body_bytes

    def read(self) -> Generator[None, None, None]:
        """Up to the high watermark."""
        while self.position < self._replica.bounds()[1]:
            if self._replica.bounds()[0] != self._log_start:
                self.leader_epoch = -1
                return
            data, stop, after, epoch = self._next()
            if not stop:
                return  # the high watermark lies inside of a batch
            yield from self._gather(data, stop, after)
            if self._replica.epoch_at(after - 1) != epoch:
                self.leader_epoch = -1
                return  # cut meanwhile, and what follows may be another history
            self.position, self.leader_epoch = after, epoch
            self._held += stop
            if len(self.latest) > KEYS_MAX:
                raise NotIncremental
            if self._held > BYTES_MAX:
                yield from self._weigh()

    def _next(self) -> tuple[bytes, int, int, int]:
        """What follows: bytes, where those end that count, the next offset, the epoch before it.

        Raises Unfit where a batch is of a transaction.
        """
        mark = self._replica.bounds()[1]
        data = self._replica.read(self.position, _READ_BYTES)
        stop, after = 0, self.position
        for position, size in batch.iterate(data):
            following = batch.next_offset(data, position)
            if following > mark:
                break
            if batch.is_transactional(data, position) or batch.is_control(data, position):
                raise NotIncremental
            stop, after = position + size, following
        return data, stop, after, self._replica.epoch_at(after - 1)

    def _gather(self, data: bytes, stop: int, until: int) -> Generator[None, None, None]:
        """What is below ``stop`` in ``data``, and no record at or above the offset ``until``.

        What was read may go on above the high watermark. A record from there may be cut off later,
        and would then hide what was committed.
        """
        position, floor = 0, self.position
        while position < stop:
            before = position
            position, floor = gather_short(self.latest, data, position, floor, until)
            if position == before:
                size = batch.size(data, position)
                yield from self._gather_one(data, position, size, floor)
                floor = max(floor, batch.next_offset(data, position))
                position += size
            yield

    def _gather_one(
        self, data: bytes, position: int, size: int, floor: int
    ) -> Generator[None, None, None]:
        if batch.next_offset(data, position) <= floor:
            return
        if not batch.crc_is_valid(data, position, size):
            self._replica.suspect(floor)
            base = batch.base_offset(data, position)
            raise CorruptRecords(f"checksum of the batch at offset {base}")
        yield from gather(self.latest, data, position, floor)

    def _weigh(self) -> Generator[None, None, None]:
        held = 0
        for number, (key, (_, value)) in enumerate(self.latest.items(), 1):
            held += len(key or b"") + len(value or b"")
            if not number % _KEYS_A_LOOK:
                yield
        if held > BYTES_MAX // 2:
            raise NotIncremental
        self._held = held
