"""The fold of one replica's log up to an offset, brought forward in steps.

Standby, load and snapshot are all made of it, for both state topics.

Source: docs/spec/coordinator.md §3.4 to §3.4.2; docs/spec/transactions.md §3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, Generic, TypeVar

from barnabas.protocol.errors import Refused
from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords

from .damaged_records import DamagedRecords
from .fold import Fold, Folding
from .ports import Replica
from .uncommitted_batches import UncommittedBatches

READ_BYTES_MAX: Final = 1 << 18
"""Read at once; more would hold the loop up for longer than a slice."""

_UNREAD: Final = -1

F = TypeVar("F", bound=Fold)


class StandbyState(Generic[F]):
    """What a log amounts to up to ``position``, and the batches behind that which came by.

    ``position`` is -1 before anything was read. A truncation below what was applied makes it
    begin anew, from the snapshot or the log's start; so does a log start that moved.
    """

    def __init__(
        self,
        replica: Replica,
        folding: Folding[Any, F, Any],
        read_bytes_max: int = READ_BYTES_MAX,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """``wake`` is called when there is something new to be applied."""
        self.replica = replica
        self._folding = folding
        self.wake = wake
        self.uncommitted = UncommittedBatches(replica.bounds()[2])
        self._read_bytes = min(read_bytes_max, READ_BYTES_MAX)
        self.snapshot_checked_segment = 0
        """Base of the active segment when a snapshot was last considered."""
        self.snapshot_checked_at = 0
        """And ``position`` then."""
        self._restart()

    def _restart(self) -> None:
        self.fold = self._folding.empty()
        self.damaged: DamagedRecords | None = None
        """What was damaged and left out; None when nothing was."""
        self.position = _UNREAD
        self.log_start = _UNREAD
        self._expected = _UNREAD
        """Up to where a snapshot goes that is being read."""
        self._touched = _UNREAD
        """Where the batch ends of which something may have been applied."""

    @property
    def remaining(self) -> int:
        """Offsets up to the log's end, without those that a snapshot spares."""
        start, _, end = self.replica.bounds()
        return end - max(self.position, self._expected, start)

    # -- what the host tells ---------------------------------------------------------------------

    def appended(self, before: int, data: bytes) -> None:
        """``data`` was appended where the log ended ``before``, or the high watermark moved."""
        if data:
            self.uncommitted.appended(before, data)
        start, mark, _ = self.replica.bounds()
        if mark > self.position or start != self.log_start:
            self.wake()

    def cut(self, offset: int) -> None:
        """Records from ``offset`` on are about to go; all of them when it is negative."""
        self.uncommitted.cut(max(offset, 0))
        if offset < max(self.position, self._touched):
            self._restart()
            self.wake()

    # -- forward ---------------------------------------------------------------------------------

    def advance(self, *, is_to_end: bool) -> Generator[None, None, None]:
        """Apply what is committed, or everything. Yields often, to be continued or left.

        Raises CorruptRecords, CorruptRequest and Refused.
        """
        while True:
            start, mark, end = self.replica.bounds()
            if start != self.log_start:
                yield from self._begin(start)
                continue
            until = end if is_to_end else mark
            if self.position >= until:
                yield from self.fold.apply_deferred()
                return
            before = self.position
            data = self.uncommitted.take(before)
            if data is None:
                data = self._read(before, may_skip=is_to_end)
            if data is None:
                continue
            yield from self._apply(data, until)
            if self.log_start == _UNREAD:
                continue  # cut meanwhile
            if self.position == before:
                if is_to_end:
                    raise CorruptRecords(f"nothing to read at {before} below the end {until}")
                yield from self.fold.apply_deferred()
                return  # the high watermark lies inside of a batch

    def _read(self, offset: int, *, may_skip: bool) -> bytes | None:
        """What is there; None when that is damaged and was left out. Raises Refused."""
        try:
            return self.replica.read(offset, self._read_bytes)
        except Refused:
            may_skip = may_skip and self._folding.skips_damage
            damage = self.replica.damage_at(offset) if may_skip else None
            if damage is None:
                raise
        self.damaged = self.damaged or DamagedRecords()
        self._folding.skip_damage(self.fold)
        self.damaged.add(damage)
        self._touched = self.position = damage.next_offset
        return None

    def _begin(self, start: int) -> Generator[None, None, None]:
        self._restart()
        self._expected = self._folding.saved_offset(self.replica)
        yield
        found = yield from self._folding.restored(self.replica)
        self._expected = _UNREAD
        if self.replica.bounds()[0] != start:
            return
        self.log_start = start
        self.position = start
        if found is not None:
            self.fold, self.position = found

    def _apply(self, data: bytes, until: int) -> Generator[None, None, None]:
        """The whole batches of one read that end at ``until`` or before.

        The next begins after the last one's last offset, not after its last record: compaction
        leaves gaps, and batches without records (KAFKA-9065).
        """
        fold, position = self.fold, 0
        while self.fold is fold:  # else cut meanwhile
            before = position
            position, following = fold.defer_short_batches(data, position, self.position, until)
            if position > before:
                self._touched = self.position = following
                yield
                continue
            entry = next(batch.iterate(data, position), None)
            if entry is None:
                return
            following = batch.next_offset(data, position)
            if following > until:
                return
            if following > self.position:
                yield from self._apply_one(data, *entry)
            position += entry[1]

    def _apply_one(self, data: bytes, position: int, size: int) -> Generator[None, None, None]:
        """The batch at ``position``, from the record that follows what was applied."""
        fold = self.fold
        if not batch.crc_is_valid(data, position, size):
            base = batch.base_offset(data, position)
            self.replica.suspect(self.position)
            raise CorruptRecords(f"checksum of the batch at offset {base}")
        self._touched = following = batch.next_offset(data, position)
        yield from fold.defer_batch(data, position, self.position)
        if self.fold is not fold:
            return  # cut meanwhile
        self.position = following
        yield
