"""A cluster in memory that serves transactions, one step at a time, with mistakes if wanted; pure.

It is what the checker is tested on: partitions with markers and a last stable offset, one group
with staged offsets, a coordinator that decides first and writes its markers later, in any order.
Source: docs/spec/transactions.md §2 to §5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random

from .history import FinalLog, Partition, Row

OFFSETS: Partition = ("offsets", 0)


class Bug(Enum):
    """A mistake that can be planted."""

    MARKER_LOST = auto()
    """One partition of a transaction never gets its marker."""
    COMMIT_BEFORE_MARKERS = auto()
    """The next transaction of an id begins before the markers of the last one are written."""
    STABLE_TOO_HIGH = auto()
    """The last stable offset is the end of the log."""
    PENDING_VISIBLE = auto()
    """Offsets are served that a transaction has not committed yet."""
    NOT_FENCED = auto()
    """The epoch of a producer and the generation of a member are not looked at."""


class Refused(Exception):  # noqa: N818 - says what happened
    """The request was not served, and never will be."""


class NotYet(Exception):  # noqa: N818 - says what happened
    """The request will be served later."""


@dataclass(slots=True)
class _Entry:
    producer: str
    row: Row | None
    """None for a marker."""
    is_commit: bool = False


@dataclass(slots=True)
class ModelLog:
    """One partition."""

    entries: list[_Entry] = field(default_factory=list)
    open: dict[str, int] = field(default_factory=dict)
    """Where the transaction of a producer begins."""
    aborted: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        """The offset that the next entry gets."""
        return len(self.entries)

    @property
    def last_stable(self) -> int:
        """Where the oldest open transaction begins."""
        return min(self.open.values(), default=self.end)

    def append(self, producer: str, origin: str, writer: str) -> int:
        """A record, in a transaction if it has a writer."""
        row = Row(self.end, origin, writer)
        if writer:
            self.open.setdefault(producer, row.offset)
        self.entries.append(_Entry(producer, row))
        return row.offset

    def mark(self, producer: str, *, is_commit: bool) -> None:
        """The end of whatever the producer has open here."""
        start = self.open.pop(producer, None)
        if start is not None and not is_commit:
            self.aborted |= {
                offset
                for offset in range(start, self.end)
                if self.entries[offset].producer == producer
            }
        self.entries.append(_Entry(producer, None, is_commit))

    def rows(self, start: int, end: int, *, is_committed: bool) -> list[Row]:
        """The records in a range, without those that are known to be aborted."""
        return [
            entry.row
            for offset, entry in enumerate(self.entries[start:end], start)
            if entry.row is not None and not (is_committed and offset in self.aborted)
        ]

    def final(self) -> FinalLog:
        """What a checker is told."""
        return FinalLog(
            committed=self.rows(0, self.last_stable, is_committed=True),
            everything=self.rows(0, self.end, is_committed=False),
            last_stable=self.last_stable,
            end=self.end,
        )


@dataclass(slots=True)
class _Id:
    """A transactional id at its coordinator."""

    epoch: int = -1
    partitions: list[Partition] = field(default_factory=list)
    """Of the transaction that is open, in the order in which they were added."""
    waiting: list[tuple[Partition, bool]] = field(default_factory=list)
    """Markers that are decided and not written yet."""


class ModelCluster:
    """All partitions, the coordinator and the group."""

    def __init__(self, random: Random, bug: Bug | None = None) -> None:
        self.logs: dict[Partition, ModelLog] = {}
        self.offsets: dict[Partition, int] = {}
        self.has_erred = False
        """The mistake that was planted has been made."""
        self._random = random
        self._bug = bug
        self._ids: dict[str, _Id] = {}
        self._staged: dict[str, dict[Partition, int]] = {}
        self._generations: dict[Partition, int] = {}

    def log(self, partition: Partition) -> ModelLog:
        """One partition, which is made when it is first named."""
        return self.logs.setdefault(partition, ModelLog())

    def init(self, producer: str) -> int:
        """InitProducerId: the new epoch; NotYet until the former transaction is over."""
        one = self._ids.setdefault(producer, _Id())
        if one.waiting:
            raise NotYet
        if one.partitions and not self._is_wrong(Bug.NOT_FENCED):
            one.epoch += 1  # or its former producer would go on writing (KAFKA-6119)
            self._decide(one, is_commit=False)
            raise NotYet
        one.epoch += 1
        return one.epoch

    def add(self, producer: str, epoch: int, partition: Partition) -> None:
        """AddPartitionsToTxn, AddOffsetsToTxn."""
        one = self._current(producer, epoch)
        if one.waiting and not self._is_wrong(Bug.COMMIT_BEFORE_MARKERS):
            raise NotYet
        if partition not in one.partitions:
            one.partitions.append(partition)

    def produce(
        self, producer: str, epoch: int, partition: Partition, origin: str, writer: str
    ) -> None:
        """One record of a transaction; refused from an old epoch."""
        one = self._current(producer, epoch)
        if partition not in one.partitions and self._bug is None:
            raise Refused
        self.log(partition).append(producer, origin, writer)

    def stage(
        self,
        producer: str,
        epoch: int,
        generations: Mapping[Partition, int],
        offsets: Mapping[Partition, int],
    ) -> None:
        """TxnOffsetCommit; refused where a partition was given to somebody since."""
        self._current(producer, epoch)
        is_old = any(self._generations[one] != generations[one] for one in offsets)
        if is_old and not self._is_wrong(Bug.NOT_FENCED):
            raise Refused
        self._staged.setdefault(producer, {}).update(offsets)
        log = self.log(OFFSETS)
        log.open.setdefault(producer, log.end)

    def end(self, producer: str, epoch: int, *, is_commit: bool) -> None:
        """EndTxn: decided when this returns."""
        one = self._current(producer, epoch)
        if one.waiting and self._bug is not Bug.COMMIT_BEFORE_MARKERS:
            raise NotYet
        if not one.partitions:
            raise Refused
        self._decide(one, is_commit=is_commit)

    def expire(self, producer: str) -> None:
        """The time-out of a transaction that is open: aborted under a higher epoch."""
        one = self._ids.get(producer)
        if one is not None and one.partitions and not one.waiting:
            one.epoch += 1
            self._decide(one, is_commit=False)

    def write_marker(self) -> bool:
        """One marker that is due, of any id; whether there was one."""
        due = [
            (producer, index)
            for producer, one in self._ids.items()
            for index in range(len(one.waiting))
        ]
        if not due:
            return False
        producer, index = self._random.choice(due)
        partition, is_commit = self._ids[producer].waiting.pop(index)
        self._mark(producer, partition, is_commit=is_commit)
        return True

    def assign(self, partition: Partition) -> int:
        """A rebalance: the generation in which its new owner may stage its offset."""
        self._generations[partition] = self._generations.get(partition, 0) + 1
        return self._generations[partition]

    def position(self, partition: Partition) -> int:
        """OffsetFetch with require_stable: NotYet while a transaction has staged it."""
        staged = [found[partition] for found in self._staged.values() if partition in found]
        if staged and self._is_wrong(Bug.PENDING_VISIBLE):
            return max(staged)
        if staged:
            raise NotYet
        return self.offsets.get(partition, 0)

    def stable(self, partition: Partition) -> int:
        """The last stable offset that a reader is told."""
        log = self.log(partition)
        if log.open and self._is_wrong(Bug.STABLE_TOO_HIGH):
            return log.end
        return log.last_stable

    def read(self, partition: Partition, start: int, end: int) -> Sequence[Row]:
        """Committed records of a range below the last stable offset."""
        return self.log(partition).rows(start, end, is_committed=True)

    def _current(self, producer: str, epoch: int) -> _Id:
        one = self._ids[producer]
        if one.epoch != epoch and not self._is_wrong(Bug.NOT_FENCED):
            raise Refused
        return one

    def _decide(self, one: _Id, *, is_commit: bool) -> None:
        partitions, one.partitions = one.partitions, []
        one.waiting += [(partition, is_commit) for partition in partitions]

    def _mark(self, producer: str, partition: Partition, *, is_commit: bool) -> None:
        is_data = partition != OFFSETS
        if is_data and self._random.random() < 0.1 and self._is_wrong(Bug.MARKER_LOST):
            return
        self.log(partition).mark(producer, is_commit=is_commit)
        if not is_data:
            staged = self._staged.pop(producer, {})
            if is_commit:
                self.offsets.update(staged)

    def _is_wrong(self, bug: Bug) -> bool:
        """Whether to make this mistake here; remembers that it was made."""
        self.has_erred |= self._bug is bug
        return self._bug is bug
