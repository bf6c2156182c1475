"""How fast replicas that are being moved may be copied: the rate of a leader, and of a follower.

Only replicas that the topic lists are throttled, and only while they are not in sync: a commit
never waits for a throttle. Source: docs/spec/security.md §4 (S66); KIP-73; Kafka 3.9
ReplicationQuotaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from .rate import Rate, Windows

UNLIMITED: Final = 2**63 - 1
ALL: Final = "*"
"""Stands for all replicas of a topic."""


class ReplicationQuota:
    """One side of replication on one node: what is throttled, and whether it goes too fast."""

    def __init__(self, windows: Windows, now: Callable[[], float]) -> None:
        self._now = now
        self._bound = UNLIMITED
        self._topics: dict[str, frozenset[int] | None] = {}
        self._rate = Rate(windows, is_filled=False)
        self.on_change: list[Callable[[], None]] = []
        """Called when :attr:`is_empty` is another than before."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is throttled, so that nobody has to ask."""
        return not self._topics or self._bound == UNLIMITED

    def use_rate(self, bytes_per_s: int) -> None:
        """Bound the throttled replicas of this node together."""
        was_empty, self._bound = self.is_empty, bytes_per_s
        self._tell_if_other_than(was_empty)

    def use_topic(self, topic: str, words: Collection[str], node_id: int) -> None:
        """Throttle the replicas of this node that a topic's list names, and no others of it."""
        was_empty, indexes = self.is_empty, throttled_indexes(words, node_id)
        if indexes is None or indexes:
            self._topics[topic] = indexes
        else:
            self._topics.pop(topic, None)
        self._tell_if_other_than(was_empty)

    def is_throttled(self, topic: str, index: int) -> bool:
        """Whether this replica is one that its topic lists."""
        indexes = self._topics.get(topic, _NO_INDEXES)
        return indexes is None or index in indexes

    def is_exceeded(self) -> bool:
        """Whether throttled replicas have to wait now."""
        return self._rate.value(self._now()) > self._bound

    def holds_back(self, topic: str, index: int) -> bool:
        """Whether this replica has to wait now, unless it is in sync."""
        return self.is_throttled(topic, index) and self.is_exceeded()

    def record(self, topic: str, index: int, count: int) -> None:
        """So many bytes of a replica were moved; those that are not throttled do not count."""
        if count and self.is_throttled(topic, index):
            self._rate.record(count, self._now())

    def _tell_if_other_than(self, was_empty: bool) -> None:
        if self.is_empty != was_empty:
            for tell in self.on_change:
                tell()


class ReplicationQuotas:
    """Both sides of one node."""

    def __init__(self, windows: Windows, now: Callable[[], float]) -> None:
        self.leader = ReplicationQuota(windows, now)
        self.follower = ReplicationQuota(windows, now)


_NO_INDEXES: Final = frozenset[int]()


def throttled_indexes(words: Collection[str], node_id: int) -> frozenset[int] | None:
    """The partitions whose replicas on a node a list names; None for all there are.

    The list is checked where it is set (settings/log_config.py): what is no pair is passed over.
    """
    if ALL in words:
        return None
    pairs = (word.split(":") for word in words)
    return frozenset(
        int(pair[0])
        for pair in pairs
        if len(pair) == 2 and pair[0].isdecimal() and pair[1] == str(node_id)
    )
