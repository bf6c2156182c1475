"""What the application was handed out, what it is done with, and what may be committed.

What is handed out last may still be worked on; it is done with when the application asks for
more. Only what is done with is committed by itself. Source: docs/spec/coordinator.md §6.6 (an
automatic commit must not lose the message in hand).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.topology import TopicPartition

from .consumed_records import Chunk

Offsets = dict[TopicPartition, CommittedOffset]


class SubscriptionState:
    """Positions of the application, and the rests of chunks that were split.

    A record passes three stages: fetched (the fetcher's position is behind it), handed out, done.
    An automatic commit stores done, never handed out: a crash while the application works on a
    record then repeats it, and loses none. A commit on request, and a clean close, store handed
    out: the application itself says that it has what it was given.
    """

    def __init__(
        self,
        past_markers: Callable[[TopicPartition, CommittedOffset], CommittedOffset] = (
            lambda topic_partition, offset: offset
        ),
    ) -> None:
        self.done: Offsets = {}
        """Where to read on behind what is done, by partition."""
        self.committed: Offsets = {}
        """Stored by us last, so that an idle consumer does not commit the same for ever."""
        self.revoked_unstored: set[TopicPartition] = set()
        """Taken from us with records handed out whose offsets nobody has stored.

        The next owner reads these records again: a transaction that has their copies must not be
        committed (docs/spec/transactions.md §7).
        """
        self.pending: deque[Chunk] = deque()
        self._past_markers = past_markers
        """Moves an offset past what follows and is handed out to nobody."""
        self._handed_out: Offsets = {}
        self._chunk: Chunk | None = None
        """Given out record by record, as far as ``_index``."""
        self._index = 0
        self._is_record_done = self._is_first = False

    def hand_out(self, chunks: Iterable[Chunk]) -> None:
        """Note that the application holds these now."""
        for chunk in chunks:
            self._handed_out[chunk.topic_partition] = CommittedOffset(
                chunk.next_offset, "", chunk.leader_epoch
            )

    def begin_chunk(self, chunk: Chunk) -> None:
        """The application holds the first record of ``chunk`` now; the others follow."""
        self._chunk, self._index, self._is_record_done = chunk, 0, False

    def mark_delivered(self, chunk: Chunk, index: int) -> None:
        """The application holds this record now, and is done with all before it in its chunk."""
        if self._chunk is chunk:
            self._index, self._is_record_done = index, False

    def finish_record(self) -> None:
        """The application asks for the next record: it is done with the last one.

        Said before a rebalance that waits may go on, so that the last record is committed before
        its partition is given up; otherwise the next owner would read it again.
        """
        self._is_record_done = True

    def finish_all(self) -> None:
        """The application asks for more: it is done with what it had; the rest of a chunk is kept.

        The rest goes to the front: the records of a partition must come in order.
        """
        self.done.update(self._handed_out)
        self._handed_out.clear()
        if self._chunk is not None:
            read, rest = self._chunk.split(self._index + 1)
            self.done[read.topic_partition] = CommittedOffset(
                read.next_offset, "", read.leader_epoch
            )
            if rest is not None:
                self.pending.appendleft(rest)
            self._chunk = None

    def handed_out(self) -> Offsets:
        """The offsets behind everything handed out, what the application still holds included."""
        return {
            topic_partition: self._past_markers(topic_partition, offset)
            for topic_partition, offset in self._held().items()
        }

    def _held(self) -> Offsets:
        found = {**self.done, **self._handed_out}
        if self._chunk is not None:
            found[self._chunk.topic_partition] = self._offset_after(self._chunk, self._index + 1)
        return found

    def finished(self) -> Offsets:
        """The offsets behind everything that is done with and not committed yet."""
        if self._chunk is not None and self._index + self._is_record_done:
            count = self._index + self._is_record_done
            self.done[self._chunk.topic_partition] = self._offset_after(self._chunk, count)
        return {
            topic_partition: offset
            for topic_partition, done in self.done.items()
            if self.committed.get(topic_partition)
            != (offset := self._past_markers(topic_partition, done))
        }

    def revoke(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Drop all state of these, which another member reads from now on."""
        held = self._held()
        for topic_partition in topic_partitions:
            stored = self.committed.get(topic_partition)
            offset = held.get(topic_partition)
            if offset is not None and (stored is None or stored.offset < offset.offset):
                self.revoked_unstored.add(topic_partition)
        self.forget(topic_partitions)

    def forget(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Drop all state of these: they were sought, revoked or lost.

        An offset kept for a partition that went to another member would set the group back when it
        is committed after the partition's return.
        """
        for topic_partition in topic_partitions:
            self.done.pop(topic_partition, None)
            self._handed_out.pop(topic_partition, None)
            self.committed.pop(topic_partition, None)
        if self._chunk is not None and self._chunk.topic_partition in topic_partitions:
            self._chunk = None
        if self.pending:
            self.pending = deque(
                chunk for chunk in self.pending if chunk.topic_partition not in topic_partitions
            )

    def has_left(self, chunk: Chunk) -> bool:
        """Whether somebody moved away from ``chunk`` since its last record was given."""
        return self._chunk is not chunk

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset of the next record kept here and not handed out; None without one."""
        if self._chunk is not None and self._chunk.topic_partition == topic_partition:
            return self._offset_after(self._chunk, self._index + 1).offset
        for chunk in self.pending:
            if chunk.topic_partition == topic_partition and len(chunk):
                return chunk.records()[0].offset
        return None

    def put_back(self, chunks: Iterable[Chunk]) -> None:
        """Keep these for the next call: they were taken last, and nobody was handed them."""
        self.pending.extendleft(reversed(list(chunks)))

    def next_pending(self, may_give: Callable[[Chunk], bool]) -> Chunk | None:
        """A chunk that was split and may be handed out."""
        for index, chunk in enumerate(self.pending):
            if may_give(chunk):
                del self.pending[index]
                return chunk
        return None

    def _offset_after(self, chunk: Chunk, count: int) -> CommittedOffset:
        """Where to read on after the first ``count`` records."""
        records = chunk.records()
        offset = records[count - 1].offset + 1 if count < len(records) else chunk.next_offset
        return CommittedOffset(offset, "", chunk.leader_epoch)
