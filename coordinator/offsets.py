"""What a group has committed: three maps, and the rules by which one value replaces another.

Source: coordinator.md sections 3.1, 3.2 and 3.6. Pure. The offset of the record that carries a
commit is the only measure of "newer"; nothing is served before the high watermark passed it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

TopicPartition: TypeAlias = tuple[str, int]


class Commit:
    """One committed offset.

    ``leader_epoch`` and ``expires_ms`` are -1 for "none". ``record_offset`` is the offset of the
    record that carries it, -1 as long as no log has taken it.
    """

    __slots__ = (
        "committed_ms",
        "expires_ms",
        "leader_epoch",
        "metadata",
        "offset",
        "record_offset",
    )

    def __init__(
        self,
        offset: int,
        leader_epoch: int,
        metadata: str,
        committed_ms: int,
        expires_ms: int,
        record_offset: int = -1,
    ) -> None:
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.committed_ms = committed_ms
        self.expires_ms = expires_ms
        self.record_offset = record_offset

    def __repr__(self) -> str:
        return f"Commit({self.offset}@{self.record_offset})"


class Offsets:
    """The offsets of one group: served, on their way, and inside open transactions."""

    __slots__ = ("committed", "old_keys", "pending", "transactional")

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, Commit] = {}
        """What OffsetFetch serves: each value is in the log below the high watermark."""
        self.pending: dict[TopicPartition, Commit] = {}
        """The latest commit of each partition that is still on its way."""
        self.transactional: dict[int, dict[TopicPartition, Commit]] = {}
        """By producer id: commits that wait for the end of a transaction."""
        self.old_keys: set[TopicPartition] = set()
        """Partitions with a record under key version 0, which needs a tombstone of its own."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is stored here and nothing is on its way."""
        return not (self.committed or self.pending or self.transactional)

    def settle(self, partition: TopicPartition, commit: Commit, record_offset: int) -> None:
        """``commit`` is in the log for good at ``record_offset``: serve it unless outdated.

        Nothing happens when the partition was forgotten meanwhile (its topic was deleted).
        """
        staged = self.pending.get(partition)
        if staged is None:
            return
        commit.record_offset = record_offset
        served = self.committed.get(partition)
        if served is None or served.record_offset < record_offset:
            self.committed[partition] = commit
        if staged is commit:
            del self.pending[partition]

    def withdraw(self, partition: TopicPartition, commit: Commit) -> None:
        """``commit`` failed: what is served stays, and so does a later commit on its way."""
        if self.pending.get(partition) is commit:
            del self.pending[partition]

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        """Serve what a producer staged where it is newer, or forget it."""
        staged = self.transactional.pop(producer_id, None)
        if staged is None or not is_committed:
            return
        for partition, commit in staged.items():
            served = self.committed.get(partition)
            if served is None or served.record_offset < commit.record_offset:
                self.committed[partition] = commit

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a newer value may soon be served: a commit is on its way or in a transaction."""
        return partition in self.pending or any(
            partition in staged for staged in self.transactional.values()
        )

    def partitions(self) -> set[TopicPartition]:
        """Every partition that has a record in the log, or may get one."""
        return self.committed.keys() | self.pending.keys()

    def of_topics(self, topics: Collection[str]) -> list[TopicPartition]:
        """The partitions of these topics, those in open transactions included."""
        found = {partition for partition in self.partitions() if partition[0] in topics}
        for staged in self.transactional.values():
            found.update(partition for partition in staged if partition[0] in topics)
        return sorted(found)

    def forget(self, partition: TopicPartition) -> None:
        """Drop whatever is known of a partition; a commit on its way will not bring it back."""
        self.committed.pop(partition, None)
        self.pending.pop(partition, None)
        self.old_keys.discard(partition)
        for producer_id, staged in list(self.transactional.items()):
            if staged.pop(partition, None) is not None and not staged:
                del self.transactional[producer_id]
