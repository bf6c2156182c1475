"""What a group has committed: three maps, and the rules by which one value replaces another.

Source: docs/spec/coordinator.md §3.1, §3.2 and §3.6. Pure. The offset of the record that carries a
commit is the only measure of "newer"; nothing is served before the high watermark passed it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final, TypeAlias

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


class Commit:
    """One committed offset.

    ``leader_epoch`` and ``expires_ms`` are -1 for "none". ``record_offset`` is the offset of the
    record that carries it; IN_FLIGHT as long as nobody knows whether a log will keep it, DISCARDED
    when it is not to be served whatever the log says. ``before`` is an older commit of the same
    partition that was in flight when this one was staged.
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

    def stage(self, partition: TopicPartition, commit: Commit) -> None:
        """``commit`` is about to be written."""
        commit.before = self.pending.get(partition)
        self.pending[partition] = commit

    def settle(self, partition: TopicPartition, commit: Commit, record_offset: int) -> None:
        """``commit`` is in the log for good at ``record_offset``: serve it unless outdated.

        Nothing happens when the partition was forgotten meanwhile (its topic was deleted).
        """
        if commit.record_offset == DISCARDED:
            return
        commit.record_offset = record_offset
        served = self.committed.get(partition)
        if served is None:
            self.committed[topic_partition(*partition)] = commit
        elif served.record_offset < record_offset:
            self.committed[partition] = commit
        if self.pending.get(partition) is commit:
            del self.pending[partition]
        if commit.before is not None:
            _discard(commit.before)
            commit.before = None

    def withdraw(self, partition: TopicPartition, commit: Commit) -> None:
        """``commit`` failed: what is served stays, and so do others that are on their way.

        An older one on its way is the latest again. Were it dropped along with this one, its
        client would be told of a success that nobody is served.
        """
        commit.record_offset = DISCARDED
        if self.pending.get(partition) is not commit:
            return
        before = commit.before
        while before is not None and before.record_offset != IN_FLIGHT:
            before = before.before
        if before is None:
            del self.pending[partition]
        else:
            self.pending[partition] = before

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
        _discard(self.pending.pop(partition, None))
        self.old_keys.discard(partition)
        for producer_id, staged in list(self.transactional.items()):
            if staged.pop(partition, None) is not None and not staged:
                del self.transactional[producer_id]


def _discard(commit: Commit | None) -> None:
    """Let neither ``commit`` nor any older one on its way be served later on."""
    while commit is not None:
        if commit.record_offset == IN_FLIGHT:
            commit.record_offset = DISCARDED
        commit = commit.before
