"""What a consumer has handed out: where the application is, and what it is done with.

What is handed out last may still be worked on; it is done with when the application asks for
more. Only what is done with is committed by itself. Source: docs/spec/coordinator.md §6.6 (an
automatic commit must not lose the message in hand).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

from barnabas.client.topology import TopicPartition

from .consumed_records import Chunk
from .group_offsets import CommittedOffset

Offsets = dict[TopicPartition, CommittedOffset]


class Hands:
    """Positions of the application; chunks that were split wait here for their turn."""

    def __init__(self) -> None:
        self.done: Offsets = {}
        """Finished, since the last question."""
        self.committed: Offsets = {}
        """Stored by us, so that the same is not stored again and again."""
        self.left: deque[Chunk] = deque()
        self._given: Offsets = {}
        self._chunk: Chunk | None = None
        """Given out record by record, as far as ``_index``."""
        self._index = 0
        self._is_record_done = self._is_first = False

    def give(self, chunks: Iterable[Chunk]) -> None:
        """These are in hand now."""
        for chunk in chunks:
            self._given[chunk.place] = CommittedOffset(chunk.next_offset, "", chunk.leader_epoch)

    def take(self, chunk: Chunk) -> None:
        """The first record of ``chunk`` is in hand now; the others follow, one by one."""
        self._chunk, self._index, self._is_record_done = chunk, 0, False

    def reach(self, chunk: Chunk, index: int) -> None:
        """This record is in hand now, and all before it in its chunk are done with."""
        if self._chunk is chunk:
            self._index, self._is_record_done = index, False

    def ask_record(self) -> None:
        """The application asks for the next record: it is done with the last one."""
        self._is_record_done = True

    def empty(self) -> None:
        """The application asks for more: what it had is done with, the rest of a chunk waits."""
        self.done.update(self._given)
        self._given.clear()
        if self._chunk is not None:
            read, rest = self._chunk.split(self._index + 1)
            self.done[read.place] = CommittedOffset(read.next_offset, "", read.leader_epoch)
            if rest is not None:
                self.left.appendleft(rest)
            self._chunk = None

    def given(self) -> Offsets:
        """Behind everything handed out, what is in hand included."""
        found = {**self.done, **self._given}
        if self._chunk is not None:
            found[self._chunk.place] = self._behind(self._chunk, self._index + 1)
        return found

    def finished(self) -> Offsets:
        """Behind everything that is done with, as far as it is not committed."""
        if self._chunk is not None and self._index + self._is_record_done:
            count = self._index + self._is_record_done
            self.done[self._chunk.place] = self._behind(self._chunk, count)
        return {
            place: offset
            for place, offset in self.done.items()
            if self.committed.get(place) != offset
        }

    def forget(self, places: Collection[TopicPartition]) -> None:
        """These are read from elsewhere now, or not at all."""
        for place in places:
            self.done.pop(place, None)
            self._given.pop(place, None)
            self.committed.pop(place, None)
        if self._chunk is not None and self._chunk.place in places:
            self._chunk = None
        if self.left:
            self.left = deque(chunk for chunk in self.left if chunk.place not in places)

    def is_elsewhere(self, chunk: Chunk) -> bool:
        """Whether somebody moved away from ``chunk`` since its last record was given."""
        return self._chunk is not chunk

    def position(self, place: TopicPartition) -> int | None:
        """The next record of ``place`` that is here and not handed out; None when none is."""
        if self._chunk is not None and self._chunk.place == place:
            return self._behind(self._chunk, self._index + 1).offset
        for chunk in self.left:
            if chunk.place == place and len(chunk):
                return chunk.records()[0].offset
        return None

    def next_left(self, may_give: Callable[[Chunk], bool]) -> Chunk | None:
        """A chunk that was split and may be handed out."""
        for index, chunk in enumerate(self.left):
            if may_give(chunk):
                del self.left[index]
                return chunk
        return None

    def _behind(self, chunk: Chunk, count: int) -> CommittedOffset:
        """Where to read on after the first ``count`` records."""
        records = chunk.records()
        offset = records[count - 1].offset + 1 if count < len(records) else chunk.next_offset
        return CommittedOffset(offset, "", chunk.leader_epoch)
