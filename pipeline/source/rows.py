"""Records gathered in columns, and Arrow batches of the frame's columns made from them.

Source: pipeline.md sections 9.3.2, 9.4 and 11.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.client.cluster import TopicPartition
from barnabas.protocol.records.record import HeaderPair, Record

from .layout import HEADERS, TIMESTAMP, Layout

ROWS_PER_BATCH: Final = 10_000
"""As many rows as Arrow batches have in Spark by default; more were slower."""
_US_PER_MS: Final = 1_000


@dataclass(slots=True)
class Rows:
    """Records of one partition, column by column, all of the same length."""

    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    timestamp_types: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[tuple[HeaderPair, ...]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.offsets)

    def extend(self, records: Sequence[Record], timestamp_type: int) -> None:
        """Append records that share a timestamp type."""
        if not records:
            return
        offsets, timestamps, keys, values, headers = zip(*records, strict=True)
        self.offsets += offsets
        self.timestamps += timestamps
        self.timestamp_types += [timestamp_type] * len(records)
        self.keys += keys
        self.values += values
        self.headers += headers


class Builder(Protocol):
    """Makes Arrow batches of a frame from gathered records."""

    layout: Layout
    needs_records: bool
    """Whether anything but offsets is looked at."""

    def build(self, place: TopicPartition, rows: Rows) -> pa.RecordBatch:
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

    def build(self, place: TopicPartition, rows: Rows) -> pa.RecordBatch:
        """One row a record."""
        columns = [_COLUMNS[name](place, rows) for name in self.layout.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def times(stamps_ms: Sequence[int | None]) -> pa.Array:
    """Milliseconds since 1970 as Spark wants its timestamps; None stays null."""
    return pc.multiply(pa.array(stamps_ms, pa.int64()), _US_PER_MS).cast(TIMESTAMP)


def constant(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    """The same value ``count`` times."""
    return pa.repeat(pa.scalar(value, kind), count)


def _header_lists(rows: Rows) -> pa.Array:
    found = [
        [{"key": key, "value": value} for key, value in headers] if headers else None
        for headers in rows.headers
    ]
    return pa.array(found, HEADERS.arrow)


_COLUMNS: Final[dict[str, Callable[[TopicPartition, Rows], pa.Array]]] = {
    "key": lambda place, rows: pa.array(rows.keys, pa.binary()),
    "value": lambda place, rows: pa.array(rows.values, pa.binary()),
    "topic": lambda place, rows: constant(place.topic, pa.string(), len(rows)),
    "partition": lambda place, rows: constant(place.partition, pa.int32(), len(rows)),
    "offset": lambda place, rows: pa.array(rows.offsets, pa.int64()),
    "timestamp": lambda place, rows: times(rows.timestamps),
    "timestampType": lambda place, rows: pa.array(rows.timestamp_types, pa.int32()),
    "headers": lambda place, rows: _header_lists(rows),
}
