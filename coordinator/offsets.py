"""What a group has committed: three maps, and the rules by which one value replaces another.

Source: docs/spec/coordinator.md §3.1, §3.2 and §3.6; docs/spec/transactions.md §4.3 and §4.4. Pure.
The offset of the record that carries a commit is the only measure of "newer"; nothing is served
before the high watermark passed it.

What is staged in transactions is a fold over the log, while it is led as well as when it is loaded:
a record of a transaction stages its value; a marker serves or drops what its producer staged below
it; a tombstone drops every older value of its key. Live and loaded must be equal at every offset,
or a failover would change what a group reads next (T4.5).
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from .bulk_offsets import BulkOffsets
    from .commit_columns import CommitColumns
    from .ports import Caller

TopicPartition: TypeAlias = tuple[str, int]


@lru_cache(maxsize=1 << 16)
def topic_partition(topic: str, partition: int) -> TopicPartition:
    """The one pair that every group keeps its offset of this partition under.

    A million offsets would else hold a million names.
    """
    return topic, partition


METADATA_BYTES_MAX: Final = 32_767
"""What a string of the offsets topic can hold, whatever ``offset.metadata.max.bytes`` allows."""


def is_metadata_too_long(metadata: str, units_max: int) -> bool:
    """Whether a commit with this metadata is refused.

    ``units_max`` is ``offset.metadata.max.bytes``, which counts UTF-16 units in spite of its name:
    Kafka compares it with the length of a Java string (docs/spec/coordinator.md §1.6, point 6).
    """
    if metadata.isascii():
        return len(metadata) > min(units_max, METADATA_BYTES_MAX)
    units = len(metadata.encode("utf-16-le")) // 2
    return units > units_max or len(metadata.encode()) > METADATA_BYTES_MAX


IN_FLIGHT: Final = -1
DISCARDED: Final = -2

Served: TypeAlias = "tuple[TopicPartition, Commit | None, Commit]"
"""A partition, what was served of it, and what the end of a transaction put in its place."""


class Commit:
    """One committed offset.

    ``leader_epoch`` and ``expires_ms`` are -1 for "none". ``record_offset`` is the offset of the
    record that carries it; IN_FLIGHT as long as nobody knows whether a log will keep it, DISCARDED
    when it is not to be served whatever the log says. ``before`` is an older commit of the same
    partition that was in flight when this one was staged, or that the same producer staged.
    """

    __slots__ = (
        "before",
        "committed_ms",
        "expires_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "record_offset",
    )

    before: Commit | None
    """Set when it is staged; one that comes from a log has none."""

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        committed_ms: int,
        expires_ms: int,
        record_offset: int = IN_FLIGHT,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.committed_ms = committed_ms
        self.expires_ms = expires_ms
        self.record_offset = record_offset

    def __repr__(self) -> str:
        return f"Commit({self.offset}@{self.record_offset})"


class TransactionalCommit(Commit):
    """A commit inside a transaction, from its TxnOffsetCommit on until the marker comes.

    ``record_offset`` is where the record is in this leader's log, known in the turn of the append.
    ``caller`` and ``change`` are for the audit trail, which records a commit when it is served.
    """

    __slots__ = ("caller", "change")

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        committed_ms: int,
        *,
        caller: Caller | None,
        change: str,
    ) -> None:
        super().__init__(offset, leader_epoch, metadata, committed_ms, -1)
        self.caller = caller
        self.change = change


class Offsets:
    """The offsets of one group: served, on their way, and inside open transactions."""

    __slots__ = ("_committed", "_pending", "_producers", "bulk", "old_keys", "transactional")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, Commit] = {}
        self._pending: dict[TopicPartition, Commit] = {}
        self.bulk: BulkOffsets | None = None
        """What was committed in columns (bulk_offsets.py); None until something was."""
        self.transactional: dict[int, dict[TopicPartition, Commit]] = {}
        """By producer id: commits that wait for the end of a transaction.

        To be changed by the methods of this class alone, which keep :attr:`_producers` along with
        it; no producer without a commit stays.
        """
        self._producers: dict[TopicPartition, set[int]] = {}
        """By partition: whose open transactions have a commit of it. Each member of an application
        may have an open transaction: asked of each of them, a fetch of one offset took long."""
        self.old_keys: set[TopicPartition] = set()
        """Partitions with a record under key version 0, which needs a tombstone of its own."""

    @property
    def committed(self) -> dict[TopicPartition, Commit]:
        """What OffsetFetch serves: each value is in the log below the high watermark.

        To be asked for anew in each turn: what is committed in columns gets there when it is asked.
        """
        bulk = self.bulk
        if bulk is not None and bulk.rows:
            bulk.spread_served(self._committed)
        return self._committed

    @property
    def pending(self) -> dict[TopicPartition, Commit]:
        """The latest commit of each partition that is still on its way."""
        bulk = self.bulk
        if bulk is not None and bulk.in_flight:
            bulk.spread_in_flight(self._pending)
        return self._pending

    @property
    def kept(self) -> int:
        """How many partitions have an offset that is served; what they are is not looked at."""
        return len(self._committed)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is on its way, nor in an open transaction."""
        is_in_flight = self.bulk is not None and bool(self.bulk.in_flight)
        return not (self._pending or self.transactional or is_in_flight)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored here and nothing is on its way."""
        return not self._committed and self.is_settled

    def stage(self, partition: TopicPartition, commit: Commit) -> None:
        """``commit`` is about to be written."""
        # Most groups never committed in columns: then the maps are what they are.
        pending = self._pending if self.bulk is None else self.pending
        commit.before = pending.get(partition)
        pending[partition] = commit

    def settle(self, partition: TopicPartition, commit: Commit, record_offset: int) -> None:
        """``commit`` is in the log for good at ``record_offset``: serve it unless outdated.

        Nothing happens when the partition was forgotten meanwhile (its topic was deleted).
        """
        if commit.record_offset == DISCARDED:
            return
        commit.record_offset = record_offset
        committed, pending, bulk = self._committed, self._pending, self.bulk
        if bulk is not None:
            committed, pending = self.committed, self.pending
            bulk.newest = max(bulk.newest, record_offset)
        served = committed.get(partition)
        if served is None:
            committed[topic_partition(*partition)] = commit
        elif served.record_offset < record_offset:
            committed[partition] = commit
        if pending.get(partition) is commit:
            del pending[partition]
        if commit.before is not None:
            _discard(commit.before)
            commit.before = None

    def withdraw(self, partition: TopicPartition, commit: Commit) -> None:
        """``commit`` failed: what is served stays, and so do others that are on their way.

        An older one on its way is the latest again. Were it dropped along with this one, its
        client would be told of a success that nobody is served.
        """
        commit.record_offset = DISCARDED
        pending = self.pending
        if pending.get(partition) is not commit:
            return
        before = commit.before
        while before is not None and before.record_offset != IN_FLIGHT:
            before = before.before
        if before is None:
            del pending[partition]
        else:
            pending[partition] = before

    def stage_columns(self, columns: CommitColumns) -> None:
        """:meth:`stage` all commits of ``columns``; :attr:`bulk` is there."""
        assert self.bulk is not None
        self.bulk.in_flight.append(columns)

    def settle_columns(self, columns: CommitColumns, record_offset: int) -> None:
        """:meth:`settle` all commits of ``columns``, the first of them at ``record_offset``."""
        bulk = self.bulk
        if bulk is None or not bulk.in_flight or bulk.in_flight[0] is not columns:
            # Somebody looked at them, or others that were staged later are settled before.
            for partition, commit in self._staged(columns):
                self.settle(partition, commit, record_offset)
                record_offset += 1
            return
        bulk.in_flight.popleft()
        columns.record_offset = record_offset
        if not bulk.put(columns, self._committed):
            bulk.spread_served(self._committed)
            bulk.put_newer(columns, self._committed)

    def withdraw_columns(self, columns: CommitColumns) -> None:
        """:meth:`withdraw` all commits of ``columns``."""
        for partition, commit in self._staged(columns):
            self.withdraw(partition, commit)

    def _staged(self, columns: CommitColumns) -> Iterator[tuple[TopicPartition, Commit]]:
        """The commits of columns that are in flight, one by one; none when they are of others."""
        if self.bulk is not None and self.bulk.in_flight:
            self.bulk.spread_in_flight(self._pending)
        return zip(columns.indexes.partitions(), columns.staged or (), strict=False)

    def stage_in_transaction(
        self,
        producer_id: int,
        partition: TopicPartition,
        commit: TransactionalCommit,
        high_watermark: int,
    ) -> None:
        """``commit`` is about to be appended at its ``record_offset``.

        Older ones of the same producer stay behind it while a marker may lie between: they are of
        a transaction that is about to end, this one is of the next (KAFKA-17507). A marker that
        did not come yet lies at the high watermark or above, so below it one is enough: a producer
        that commits in a loop grows no chain.
        """
        staged = self.transactional.get(producer_id)
        commit.before = None if staged is None else staged.get(partition)
        older = commit.before
        while isinstance(older, TransactionalCommit):
            if older.record_offset < high_watermark:
                older.before = None
            older = older.before
        self.put_staged(producer_id, partition, commit)

    def put_staged(self, producer_id: int, partition: TopicPartition, commit: Commit) -> None:
        """``commit`` is what the open transaction of a producer has of this partition."""
        staged = self.transactional.get(producer_id)
        if staged is None:
            staged = self.transactional[producer_id] = {}
        if partition not in staged:
            producers = self._producers.get(partition)
            if producers is None:
                self._producers[partition] = {producer_id}
            else:
                producers.add(producer_id)
        staged[partition] = commit

    def remove_staged(self, producer_id: int, partition: TopicPartition) -> None:
        """Drop what the open transaction of a producer has of this partition, if anything."""
        staged = self.transactional.get(producer_id)
        if staged is None or staged.pop(partition, None) is None:
            return
        self._note_removed(producer_id, partition)
        if not staged:
            del self.transactional[producer_id]

    def remove_all_staged(self, partition: TopicPartition) -> None:
        """Drop what any open transaction has of this partition."""
        for producer_id in list(self._producers.get(partition, ())):
            self.remove_staged(producer_id, partition)

    def _note_removed(self, producer_id: int, partition: TopicPartition) -> None:
        producers = self._producers[partition]
        producers.remove(producer_id)
        if not producers:
            del self._producers[partition]

    def withdraw_from_transaction(
        self, producer_id: int, partition: TopicPartition, commit: TransactionalCommit
    ) -> None:
        """``commit`` did not get into the log: what the transaction staged before counts again.

        As after a load, which finds the earlier record (T4.7).
        """
        staged = self.transactional.get(producer_id)
        if staged is None or staged.get(partition) is not commit:
            return
        if commit.before is not None:
            staged[partition] = commit.before
        else:
            self.remove_staged(producer_id, partition)

    def end_transaction(
        self, producer_id: int, *, is_committed: bool, marker_offset: int
    ) -> list[Served]:
        """Serve what a producer staged below the marker where it is newer, or forget it.

        What it staged above is of its next transaction and stays (KAFKA-17507). Returns what is
        served from now on, and instead of what.
        """
        staged = self.transactional.get(producer_id)
        if staged is None:
            return []
        committed, bulk = self.committed, self.bulk
        served: list[Served] = []
        for partition, newest in list(staged.items()):
            commit = _cut_at_marker(newest, marker_offset)
            if commit is newest:
                del staged[partition]
                self._note_removed(producer_id, partition)
            if commit is None or not is_committed:
                continue
            former = committed.get(partition)
            if former is None or former.record_offset < commit.record_offset:
                committed[topic_partition(*partition)] = commit
                served.append((partition, former, commit))
            if bulk is not None and commit.record_offset > bulk.newest:
                bulk.newest = commit.record_offset
        if not staged:
            del self.transactional[producer_id]
        return served

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a newer value may soon be served: a commit is on its way or in a transaction."""
        return partition in self.pending or partition in self._producers

    def served_partitions(self) -> list[TopicPartition]:
        """Every partition that has an offset, in order."""
        return sorted(self._committed)

    def partitions(self) -> set[TopicPartition]:
        """Every partition that has a record in the log, or may get one.

        Those that only a transaction staged as well: without a tombstone of their own the marker
        would bring them back after a load (docs/spec/transactions.md §4.6).
        """
        return set().union(self._committed, self.pending, self._producers)

    def of_topics(self, topics: AbstractSet[str]) -> list[TopicPartition]:
        """The partitions of these topics, those in open transactions included.

        ``topics`` is a set. Each map is filtered by itself: a group without any of them, as nearly
        all are when a topic is deleted, makes no set of all that it has.
        """
        found = {partition for partition in self._committed if partition[0] in topics}
        found.update([partition for partition in self.pending if partition[0] in topics])
        found.update([partition for partition in self._producers if partition[0] in topics])
        return sorted(found)

    def is_in_transaction(self, partition: TopicPartition) -> bool:
        """Whether a transaction that is still open has a commit of this partition."""
        return partition in self._producers

    def forget(self, partition: TopicPartition) -> None:
        """Drop whatever is known of a partition; a commit on its way will not bring it back."""
        self.committed.pop(partition, None)
        _discard(self.pending.pop(partition, None))
        if self.bulk is not None:
            self.bulk.forget_indexes()
        self.old_keys.discard(partition)
        self.remove_all_staged(partition)


def _cut_at_marker(newest: Commit, marker_offset: int) -> Commit | None:
    """The newest of a chain whose record lies below the marker, taken out with what is behind it.

    None where all of the chain are of the next transaction. One that was loaded from above the
    marker is: the load has folded the marker already.
    """
    above: TransactionalCommit | None = None
    commit: Commit | None = newest
    while commit is not None and commit.record_offset > marker_offset:
        if not isinstance(commit, TransactionalCommit):
            return None
        above, commit = commit, commit.before
    if above is not None:
        above.before = None
    if isinstance(commit, TransactionalCommit):
        commit.before = None
    return commit


def _discard(commit: Commit | None) -> None:
    """Let neither ``commit`` nor any older one on its way be served later on."""
    while commit is not None:
        if commit.record_offset == IN_FLIGHT:
            commit.record_offset = DISCARDED
        commit = commit.before
