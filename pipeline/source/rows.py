"""Records gathered in columns, and Arrow batches of the frame's columns made from them.

Source: docs/spec/pipeline.md §1.3 trap 2, §1.4 and §3.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from barnabas.client.cluster import TopicPartition

from .layout import HEADERS, TIMESTAMP, Layout

if TYPE_CHECKING:
    from barnabas.protocol.records.columns import Columns, Numbers

ROWS_PER_BATCH: Final = 20_000
"""Rows of one Arrow batch, about; neither more nor fewer were faster."""
_US_PER_MS: Final = 1_000


class Rows:
    """Records of one partition; the columns of Arrow are made when they are first asked for."""

    def __init__(self, offsets: Numbers, records: Columns | None = None) -> None:
        """``records`` None where nobody will ask for more than offsets."""
        self.offsets = offsets
        self._records = records

    @classmethod
    def of(cls, records: Columns) -> Rows:
        """Whole records."""
        return cls(records.offsets, records)

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def timestamps(self) -> Numbers:
        """Milliseconds since 1970, -1 for none."""
        return self._whole.timestamps

    @property
    def timestamp_types(self) -> Numbers:
        """0 for the producer's time, 1 for the broker's, -1 for none."""
        return self._whole.timestamp_types

    @property
    def keys(self) -> pa.BinaryArray:
        """The keys, null where there was none."""
        return self._fields.take(self._field_numbers(0, self._whole.key_sizes))

    @property
    def values(self) -> pa.BinaryArray:
        """The values, null where there was none."""
        return self._fields.take(self._field_numbers(2, self._whole.value_sizes))

    @property
    def headers(self) -> pa.ListArray:
        """The headers, null where there are none."""
        return pa.array(self._whole.headers(), HEADERS.arrow)

    def pairs(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Key and value of every record."""
        return zip(self.keys.to_pylist(), self.values.to_pylist(), strict=True)

    @property
    def _whole(self) -> Columns:
        assert self._records is not None, "only offsets were gathered"
        return self._records

    @cached_property
    def _fields(self) -> pa.BinaryArray:
        """The bytes of the records where they lie, divided: a key, a rest, a value, a rest, ..."""
        found = self._whole
        marks = np.zeros(4 * len(self) + 1, np.int32)
        marks[0:-1:4] = found.key_positions
        marks[1::4] = found.key_positions + np.maximum(found.key_sizes, 0)
        marks[2::4] = found.value_positions
        marks[3::4] = found.value_positions + np.maximum(found.value_sizes, 0)
        marks[-1] = marks[-2] if len(self) else 0
        buffers = [None, pa.py_buffer(marks), pa.py_buffer(found.data)]
        return pa.BinaryArray.from_buffers(pa.binary(), 4 * len(self), buffers)

    def _field_numbers(self, first: int, sizes: Numbers) -> pa.Int64Array:
        """Which of the fields, null for what is null."""
        nulls = sizes < 0
        numbers = np.arange(first, first + 4 * len(self), 4)
        return pa.array(numbers, mask=nulls if nulls.any() else None)


class Builder(Protocol):
    """Makes Arrow batches of a frame from gathered records."""

    layout: Layout
    needs_records: bool
    """Whether anything but offsets is looked at."""

    def build(self, topic_partition: TopicPartition, rows: Rows) -> pa.RecordBatch:
        """One batch; it may have fewer rows than there are records, even none."""


class RecordRows:
    """Records as they are: the columns of Spark's Kafka connector."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.needs_records = not set(layout.names) <= {"topic", "partition", "offset"}
        self._schema = layout.arrow

    def __reduce__(self) -> tuple[Any, ...]:
        """Arrow schemas are made anew where it is unpickled."""
        return RecordRows, (self.layout,)

    def build(self, topic_partition: TopicPartition, rows: Rows) -> pa.RecordBatch:
        """One row a record."""
        columns = [_COLUMNS[name](topic_partition, rows) for name in self.layout.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def times(stamps_ms: Sequence[int | None] | Numbers) -> pa.Array:
    """Milliseconds since 1970 as Spark wants its timestamps; None stays null."""
    import pyarrow.compute as pc  # takes 0.05 s, which a process that only plans does not need

    return pc.multiply(pa.array(stamps_ms, pa.int64()), _US_PER_MS).cast(TIMESTAMP)


def constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """The same value ``count`` times."""
    return pa.repeat(pa.scalar(value, kind), count)


_COLUMNS: Final[dict[str, Callable[[TopicPartition, Rows], pa.Array]]] = {
    "key": lambda topic_partition, rows: rows.keys,
    "value": lambda topic_partition, rows: rows.values,
    "topic": lambda topic_partition, rows: constant(topic_partition.topic, pa.string(), len(rows)),
    "partition": lambda topic_partition, rows: constant(
        topic_partition.partition, pa.int32(), len(rows)
    ),
    "offset": lambda topic_partition, rows: pa.array(rows.offsets),
    "timestamp": lambda topic_partition, rows: times(rows.timestamps),
    "timestampType": lambda topic_partition, rows: pa.array(rows.timestamp_types.astype(np.int32)),
    "headers": lambda topic_partition, rows: rows.headers,
}
