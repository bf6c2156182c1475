"""What a consumer has handed out: where the application is, and what it is done with.

What is handed out last may still be worked on; it is done with when the application asks for
more. Only what is done with is committed by itself. Source: coordinator.md section 6.6 (an
automatic commit must not lose the message in hand).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

from .consumed import Chunk, ConsumedRecord
from .group_offsets import CommittedOffset
from .topology import TopicPartition

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
        self._record: ConsumedRecord | None = None
        self._is_record_done = False

    def give(self, chunks: Iterable[Chunk]) -> None:
        """These are in hand now."""
        for chunk in chunks:
            self._given[chunk.place] = CommittedOffset(chunk.next_offset, "", chunk.leader_epoch)

    def give_record(self, chunk: Chunk, record: ConsumedRecord) -> None:
        """This one is in hand now, and all before it in its chunk are done with."""
        self._chunk, self._record, self._is_record_done = chunk, record, False

    def ask_record(self) -> None:
        """The application asks for the next record: it is done with the last one."""
        self._is_record_done = True

    def empty(self) -> None:
        """The application asks for more: what it had is done with."""
        self.done.update(self._given)
        self._given.clear()

    def given(self) -> Offsets:
        """Behind everything handed out, what is in hand included."""
        found = {**self.done, **self._given}
        if self._chunk is not None and self._record is not None:
            offset = self._record.offset + 1
            found[self._chunk.place] = CommittedOffset(offset, "", self._chunk.leader_epoch)
        return found

    def finished(self) -> Offsets:
        """Behind everything that is done with, as far as it is not committed."""
        if self._chunk is not None and self._record is not None:
            place, epoch = self._chunk.place, self._chunk.leader_epoch
            if self._is_record_done or self._record is not self._chunk.records()[0]:
                offset = self._record.offset + self._is_record_done
                self.done[place] = CommittedOffset(offset, "", epoch)
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
            self._chunk = self._record = None
        if self.left:
            self.left = deque(chunk for chunk in self.left if chunk.place not in places)

    def is_elsewhere(self, chunk: Chunk) -> bool:
        """Whether somebody moved away from ``chunk`` since its last record was given."""
        return self._chunk is not chunk

    def drop_chunk(self) -> None:
        """No record is in hand any more: the chunk is read to its end."""
        if self._chunk is not None:
            place = self._chunk.place
            self.done[place] = CommittedOffset(
                self._chunk.next_offset, "", self._chunk.leader_epoch
            )
        self._chunk = self._record = None

    def position(self, place: TopicPartition) -> int | None:
        """The next record of ``place`` that is here and not handed out; None when none is."""
        if self._chunk is not None and self._record is not None and self._chunk.place == place:
            return self._record.offset + 1
        for chunk in self.left:
            if chunk.place == place and chunk.records():
                return chunk.records()[0].offset
        return None

    def next_left(self, may_give: Callable[[Chunk], bool]) -> Chunk | None:
        """A chunk that was split and may be handed out."""
        for index, chunk in enumerate(self.left):
            if may_give(chunk):
                del self.left[index]
                return chunk
        return None
