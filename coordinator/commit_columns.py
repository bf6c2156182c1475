"""The commits of one topic in one request, kept in the columns they came in.

What a request for 500 partitions says stays in its bytes (protocol/codec/rows.py): its records, its
response and the responses to fetches are made of them column by column. An object for each
partition is made when somebody asks for a single one (bulk_offsets.py).
Source: docs/spec/coordinator.md §3.2.1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from struct import pack, unpack
from typing import Final

from barnabas.protocol.codec.rows import RowLayout, Rows
from barnabas.protocol.codec.wire import factory
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import offset_fetch
from barnabas.protocol.messages.offset_commit import Partition, PartitionResult
from barnabas.protocol.strided import Column

from .offsets import IN_FLIGHT, Commit, TopicPartition, topic_partition


class PartitionIndexes:
    """The partitions of a topic that a request names, each once; whoever has the same shares it."""

    __slots__ = ("_set", "accepted", "highest", "indexes", "packed", "topic")

    def __init__(self, topic: str, packed: bytes, indexes: tuple[int, ...]) -> None:
        self.topic = topic
        self.packed = packed
        """int32 each, in the order of the request."""
        self.indexes = indexes
        self.highest = max(indexes)
        self._set: frozenset[int] | None = None
        self.accepted: dict[RowLayout[PartitionResult], Rows[PartitionResult]] = {}
        """What each layout of a response says of all of them once they are committed."""

    @classmethod
    def read(cls, topic: str, packed: bytes) -> PartitionIndexes | None:
        """None for what needs a look at each of them: one below 0, or one that is named twice."""
        indexes = unpack(f">{len(packed) // 4}i", packed)
        if min(indexes) < 0 or len(set(indexes)) < len(indexes):
            return None
        return cls(topic, packed, indexes)

    def are(self, indexes: Sequence[int]) -> bool:
        """Whether these are the same ones, in whatever order, none of them twice."""
        if len(indexes) != len(self.indexes):
            return False
        if tuple(indexes) == self.indexes:
            return True
        if self._set is None:
            self._set = frozenset(self.indexes)
        return self._set.issuperset(indexes) and len(set(indexes)) == len(indexes)

    @property
    def column(self) -> Column:
        """The indexes as a field of rows."""
        return Column(self.packed, 0, 4, 4)

    def partitions(self) -> Iterator[TopicPartition]:
        """The pairs that a group keeps its offsets under."""
        return map(topic_partition, repeat(self.topic), self.indexes)


class CommitColumns:
    """What a request commits of one topic: as :class:`Commit`, of every partition in ``indexes``.

    ``record_offset`` is that of the first record; the others follow in the order of ``indexes``.
    """

    __slots__ = ("committed_ms", "expires_ms", "indexes", "record_offset", "rows", "staged")

    def __init__(
        self,
        indexes: PartitionIndexes,
        rows: Rows[Partition],
        committed_ms: int,
        expires_ms: int,
    ) -> None:
        self.indexes = indexes
        self.rows = rows
        self.committed_ms = committed_ms
        self.expires_ms = expires_ms
        self.record_offset = IN_FLIGHT
        self.staged: list[Commit] | None = None
        """The same as objects, once somebody looked at what is in flight: those count then."""

    def __len__(self) -> int:
        return len(self.rows)

    def commits(self) -> list[Commit]:
        """One object for each partition."""
        count, rows = len(self.rows), self.rows
        offsets = unpack(f">{count}q", rows.column("committed_offset").packed())
        epochs: Iterator[int] = repeat(-1)
        if self.has_epochs:
            epochs = iter(unpack(f">{count}i", rows.column("committed_leader_epoch").packed()))
        first = self.record_offset
        record_offsets: Iterator[int] = repeat(IN_FLIGHT)
        if first >= 0:
            record_offsets = iter(range(first, first + count))
        times, expiries = repeat(self.committed_ms), repeat(self.expires_ms)
        return list(map(Commit, offsets, epochs, self._texts(), times, expiries, record_offsets))

    @property
    def has_epochs(self) -> bool:
        """Whether the version of the request has leader epochs."""
        return "committed_leader_epoch" in self.rows.shape.positions

    def columns(self) -> dict[str, Column]:
        """The fields of a commit, by their names in the request and in responses."""
        rows = self.rows
        found = {name: rows.column(name) for name in ("partition_index", "committed_offset")}
        if self.has_epochs:
            found["committed_leader_epoch"] = rows.column("committed_leader_epoch")
        if rows.shape.text_bytes["committed_metadata"] > 0:
            found["metadata"] = rows.column("committed_metadata")
        return found

    def _texts(self) -> Iterator[str]:
        width = self.rows.shape.text_bytes["committed_metadata"]
        if width <= 0:
            return repeat("", len(self.rows))
        texts = self.rows.column("committed_metadata").packed().decode("ascii")
        return (texts[start : start + width] for start in range(0, len(texts), width))


_ABSENT: Final = Commit(-1, -1, "", -1, -1)
"""What is told of a partition without an offset."""

_fetched: Final = factory(
    offset_fetch.PartitionResult,
    "partition_index",
    "committed_offset",
    "committed_leader_epoch",
    "metadata",
    "error_code",
)


def fetched_columns(
    columns: CommitColumns, layout: RowLayout[offset_fetch.PartitionResult]
) -> Rows[offset_fetch.PartitionResult]:
    """What OffsetFetch answers of all partitions of ``columns``, in their order."""
    first = columns.rows.first()
    metadata = first.committed_metadata or ""
    sample = _fetched(
        first.partition_index,
        first.committed_offset,
        first.committed_leader_epoch,
        metadata,
        ErrorCode.NONE,
    )
    return layout.alike(sample, len(columns), columns.columns())


def fetched(
    indexes: Sequence[int],
    commits: Sequence[Commit | None],
    layout: RowLayout[offset_fetch.PartitionResult],
) -> Rows[offset_fetch.PartitionResult] | None:
    """The same of commits one by one, None for those that are absent.

    None where one of them has metadata: then the rows have not the same length.
    """
    count = len(indexes)
    known = [commit or _ABSENT for commit in commits]
    if {commit.metadata for commit in known} != {""}:
        return None
    packed = {
        "partition_index": pack(f">{count}i", *indexes),
        "committed_offset": pack(f">{count}q", *[commit.offset for commit in known]),
        "committed_leader_epoch": pack(f">{count}i", *[commit.leader_epoch for commit in known]),
    }
    columns = {
        name: Column(values, 0, len(values) // count, len(values) // count)
        for name, values in packed.items()
    }
    return layout.alike(_fetched(indexes[0], -1, -1, "", ErrorCode.NONE), count, columns)
