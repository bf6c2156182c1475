"""Consumed records, and chunks of them that are decoded when first looked at.

Source: docs/spec/log.md §1.5; KIP-98 (what a reader of committed records leaves out).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from barnabas.client.topology import TopicPartition
from barnabas.protocol.records.record import HeaderPair


class ConsumedRecord(NamedTuple):
    """One record and where it was read."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, -1 for none."""
    key: Any
    """Bytes or None, unless the consumer was given a decoder."""
    value: Any
    headers: tuple[HeaderPair, ...] = ()


class RecordSource(Protocol):
    """What can become records; fetched_batches.py has the one that reads bytes."""

    def records(self, topic_partition: TopicPartition) -> Sequence[ConsumedRecord]:
        """All of them; raises DecodingFailed."""
        ...

    def values(self) -> list[Any]:
        """Only the values."""
        ...

    def iterate(self, topic_partition: TopicPartition) -> Iterator[ConsumedRecord]:
        """One after the other, none kept; raises DecodingFailed."""
        ...

    def count(self) -> int | None:
        """How many there are, when that is known without decoding."""
        ...


class Chunk:
    """Neighbouring records of one partition, out of one fetch.

    Bytes become records at the first look at them. ``next_offset`` is where to read on, and what
    to commit: it may lie behind the last record, where compaction or a transaction left gaps.
    """

    __slots__ = (
        "_records",
        "_source",
        "high_watermark",
        "leader_epoch",
        "next_offset",
        "seek_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        source: RecordSource,
        next_offset: int,
        leader_epoch: int = -1,
        high_watermark: int = -1,
        seek_id: int = -1,
    ) -> None:
        self.topic_partition = topic_partition
        self.next_offset = next_offset
        self.leader_epoch = leader_epoch
        """Of the last batch read; commit it with ``next_offset``. -1 for unknown."""
        self.high_watermark = high_watermark
        self.seek_id = seek_id
        """Which way through the partition it belongs to: a seek begins another."""
        self._source: RecordSource | None = source
        self._records: Sequence[ConsumedRecord] = ()

    @property
    def topic(self) -> str:
        """The topic that was read."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The partition that was read."""
        return self.topic_partition.partition

    def records(self) -> Sequence[ConsumedRecord]:
        """The records in order; raises DecodingFailed when their bytes are none."""
        if self._source is not None:
            self._records, self._source = self._source.records(self.topic_partition), None
        return self._records

    def values(self) -> list[Any]:
        """The values alone, which is faster for who needs nothing else."""
        if self._source is not None:
            return self._source.values()
        return [record[5] for record in self._records]

    def split(self, count: int) -> tuple[Chunk, Chunk | None]:
        """The first ``count`` records, and the others if there are any."""
        assert count > 0, "a chunk without records brings nobody further"
        if len(self) <= count:
            return self, None
        records = self.records()
        rest = records[count:]
        return (
            self._part(records[:count], rest[0].offset),
            self._part(rest, self.next_offset),
        )

    def __len__(self) -> int:
        """How many records."""
        known = None if self._source is None else self._source.count()
        return len(self.records()) if known is None else known

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """The records in order; they are decoded as they are asked for, and not kept."""
        if self._source is None:
            return iter(self._records)
        return self._source.iterate(self.topic_partition)

    def _part(self, records: Sequence[ConsumedRecord], next_offset: int) -> Chunk:
        source = _DecodedRecords(records)
        return Chunk(
            self.topic_partition,
            source,
            next_offset,
            self.leader_epoch,
            self.high_watermark,
            self.seek_id,
        )


class _DecodedRecords:
    def __init__(self, records: Sequence[ConsumedRecord]) -> None:
        self._records = records

    def records(self, topic_partition: TopicPartition) -> Sequence[ConsumedRecord]:
        return self._records

    def values(self) -> list[Any]:
        return [record[5] for record in self._records]

    def iterate(self, topic_partition: TopicPartition) -> Iterator[ConsumedRecord]:
        return iter(self._records)

    def count(self) -> int:
        return len(self._records)
