"""Commits in columns beside the maps of a group: laid over what is served, or in flight.

A request that commits many partitions of a topic mostly commits the same ones as the last time.
Its columns then replace those of the last time as a whole, and no object is made. What is served
must be the same as if it had been committed one by one, so whoever looks at the maps of
:class:`~barnabas.coordinator.offsets.Offsets` makes the columns part of them first: they are
spread.

What holds:

- Every partition of columns that are served has a value in ``committed``, perhaps an older one: how
  many there are, and which, is known without spreading.
- Columns that are served and not spread are newer than all that is in ``committed`` of them.
- Columns that are in flight and not spread were staged after all that is in ``pending``.

Source: docs/spec/coordinator.md §3.2.1.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from .commit_columns import CommitColumns, PartitionIndexes
from .offsets import Commit, TopicPartition

ROWS_MAX: Final = 10_000
"""Commits of a group that are not spread: to spread them all takes some 5 ms."""


class BulkOffsets:
    """The columns of one group."""

    __slots__ = ("_indexes", "_served", "in_flight", "newest", "rows")

    def __init__(self) -> None:
        self.in_flight: deque[CommitColumns] = deque()
        """In the order in which they were staged; none of them is spread."""
        self.newest = -1
        """No commit that was settled since these exist has a record above this offset."""
        self.rows = 0
        """Commits that are served and not spread."""
        self._served: dict[str, CommitColumns] = {}
        """By topic; not spread."""
        self._indexes: dict[str, PartitionIndexes] = {}
        """By topic those of the last columns that were served."""

    def served(self, topic: str) -> CommitColumns | None:
        """Columns of this topic that are served and not spread."""
        return self._served.get(topic)

    def indexes(self, topic: str) -> PartitionIndexes | None:
        """Those that were committed last, to be compared with; all of them have an offset."""
        return self._indexes.get(topic)

    def put(self, columns: CommitColumns, committed: dict[TopicPartition, Commit]) -> bool:
        """Serve columns whose ``record_offset`` is known; False where they have to be spread."""
        indexes, topic, first = columns.indexes, columns.indexes.topic, columns.record_offset
        is_newest = first > self.newest
        self.newest = max(self.newest, first + len(columns) - 1)
        former = self._served.get(topic)
        known = self._indexes.get(topic)
        if known is None or known.packed != indexes.packed:
            self._indexes[topic] = indexes
            if former is not None or not all(map(committed.__contains__, indexes.partitions())):
                return False
        if not is_newest or (former is None and self.rows + len(columns) > ROWS_MAX):
            return False
        self._served[topic] = columns
        self.rows += len(columns) if former is None else 0
        return True

    def spread_served(self, committed: dict[TopicPartition, Commit]) -> None:
        """Make all that is served part of ``committed``."""
        served, self._served, self.rows = self._served, {}, 0
        for columns in served.values():
            self.put_newer(columns, committed)

    def put_newer(self, columns: CommitColumns, committed: dict[TopicPartition, Commit]) -> None:
        """Make each commit of ``columns`` part of ``committed``, unless a newer one is there."""
        for partition, commit in zip(columns.indexes.partitions(), columns.commits(), strict=True):
            served = committed.get(partition)
            if served is None or served.record_offset < commit.record_offset:
                committed[partition] = commit

    def spread_in_flight(self, pending: dict[TopicPartition, Commit]) -> None:
        """Make all that is in flight part of ``pending``."""
        while self.in_flight:
            columns = self.in_flight.popleft()
            columns.staged = columns.commits()
            for partition, commit in zip(columns.indexes.partitions(), columns.staged, strict=True):
                commit.before = pending.get(partition)
                pending[partition] = commit

    def forget_indexes(self) -> None:
        """A partition is about to be removed from the maps: what is there is not known any more."""
        self._indexes.clear()
