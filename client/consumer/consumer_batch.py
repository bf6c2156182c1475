"""A batch of records of several partitions, whose offsets are committed as one.

Source: docs/spec/users.md §6 (batches, commits as context managers, frames).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from barnabas.client.group_metadata import CommittedOffset
from barnabas.client.topology import TopicPartition

from .consumed_records import Chunk, ConsumedRecord

if TYPE_CHECKING:
    import pandas
    import pyarrow

Commit = Callable[[dict[TopicPartition, CommittedOffset]], Awaitable[None]]


class Batch:
    """Records of one or several partitions, in order within each.

    ``async with batch:`` commits its offsets when the block ends without an exception; with one
    nothing is committed, and the records come again to whoever reads the partitions next.
    """

    def __init__(self, chunks: Sequence[Chunk], commit: Commit) -> None:
        self.chunks = chunks
        self._commit = commit

    @property
    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Where to read on after this batch, by partition."""
        return {
            chunk.topic_partition: CommittedOffset(chunk.next_offset, "", chunk.leader_epoch)
            for chunk in self.chunks
        }

    def records(self) -> list[ConsumedRecord]:
        """All records."""
        return list(chain.from_iterable(chunk.records() for chunk in self.chunks))

    def values(self) -> list[Any]:
        """The values alone, which is faster for who needs nothing else."""
        return list(chain.from_iterable(chunk.values() for chunk in self.chunks))

    async def commit(self) -> None:
        """Commit :attr:`offsets`; raises CommitFailed when the group went on without us."""
        await self._commit(self.offsets)

    def to_arrow(self) -> pyarrow.Table:
        """A pyarrow table of the records; needs the extra ``arrow``."""
        from .dataframes import arrow_table

        return arrow_table(self.records())

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas frame of the records; needs the extra ``pandas``."""
        from .dataframes import pandas_frame

        return pandas_frame(self.records())

    def __len__(self) -> int:
        """How many records."""
        return sum(map(len, self.chunks))

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """The records."""
        return chain.from_iterable(self.chunks)

    async def __aenter__(self) -> Self:
        """The batch."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, unless something was raised."""
        if error is None:
            await self.commit()
