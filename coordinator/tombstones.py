"""Records that delete: offsets by partition, and a group as a whole.

Source: docs/spec/coordinator.md §2.4. Tombstones of one call may end up in several batches: each
stands for itself, and one that is lost is written again by whoever finds the offset expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.offsets_topic import group_key, offset_key, old_offset_key

from .consumer_groups.consumer_group import ConsumerGroup
from .consumer_groups.stored_group import group_tombstones
from .group import Group
from .offsets import TopicPartition
from .offsets_journal import Entry, Journal

_ENTRIES_AT_ONCE: Final = 256
_APPENDED: Final = frozenset(
    {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
"""Failures of an append that is in the leader's log all the same."""


def tombstones(group: Group, partitions: Iterable[TopicPartition]) -> list[Entry]:
    """For these offsets of a group, under every key version they may have been written with."""
    entries: list[Entry] = []
    for topic, index in partitions:
        entries.append((offset_key(group.group_id, topic, index), None))
        if (topic, index) in group.offsets.old_keys:
            entries.append((old_offset_key(group.group_id, topic, index), None))
    return entries


def group_tombstone(group: Group) -> list[Entry]:
    """For the group itself; none when it only ever kept offsets and so has no record."""
    if isinstance(group, ConsumerGroup):
        return group_tombstones(group)
    stale: list[Entry] = [(key, None) for key in group.stale_keys]
    return [*stale, (group_key(group.group_id), None)] if group.generation > 0 else stale


class TombstoneWrite:
    """Writes tombstones; calls ``done`` once, when the last of them is committed or has failed."""

    __slots__ = ("_done", "_outstanding", "_worst", "may_be_written")

    def __init__(self, done: Callable[[ErrorCode], None]) -> None:
        self._done = done
        self._outstanding = 1
        self._worst = ErrorCode.NONE
        self.may_be_written = False
        """Whether any of them was appended, as far as that is known."""

    def write(self, journal: Journal, group: Group, entries: list[Entry]) -> None:
        """Hand tombstones of one group to the journal, in portions that fit into a batch."""
        for start in range(0, len(entries), _ENTRIES_AT_ONCE):
            self._outstanding += 1
            journal.write(group.term, entries[start : start + _ENTRIES_AT_ONCE], self._on_committed)

    def close(self) -> None:
        """No more is coming: ``done`` is called with the last answer, or now."""
        self._on_committed(ErrorCode.NONE, -1)

    def _on_committed(self, code: ErrorCode, offset: int) -> None:
        self._worst = self._worst or code
        if (not code and offset >= 0) or code in _APPENDED:
            self.may_be_written = True
        self._outstanding -= 1
        if not self._outstanding:
            done, self._done = self._done, _ignore  # no cycle: freed without the collector
            done(self._worst)


def _ignore(_code: ErrorCode) -> None:
    """``done`` was called already."""
