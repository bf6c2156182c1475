"""Keys and values of an Arrow batch as columns: partitioned, cut and encoded without a row each.

What a sender does with a row in Python costs some three microseconds, and Spark hands over rows in
columns. Here partitions are computed for all keys at once, and records whose keys have one length
and whose values have one length are laid out as a matrix of bytes; others are encoded one by one.
What comes out is, byte for byte, what the rows would have given. Source: docs/spec/log.md §1.5 for
the record, docs/spec/pipeline.md §3.1 (sink) for the columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from barnabas.protocol.hashing import MURMUR2_FACTOR, MURMUR2_SEED, keyed_partition
from barnabas.protocol.records.builder import NULL, encoded_pairs
from barnabas.protocol.records.record_rows import runs_of_deltas
from barnabas.protocol.records.varints import encode_varint

Rows = NDArray[np.int64]
"""Numbers of rows, rising."""
PER_RECORD_BYTES: Final = 24
"""More than a record needs besides key, value and headers."""

_LOOKED_AT: Final = ("key", "value", "partition", "headers")
_GROUP_MIN: Final = 8
"""Fewer keys of one length are hashed one by one."""
_MATRIX_MIN: Final = 8
"""Fewer records are encoded one by one."""


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """The byte strings of many rows, none of them null."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, array: pa.Array) -> BytesColumn:
        """From strings or binaries."""
        array = array.cast(pa.binary())
        _, offsets, data = array.buffers()
        bounds = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
        held = np.frombuffer(data if data is not None else b"", np.uint8)
        return cls(held, bounds[:-1], np.diff(bounds))

    def common_length(self, rows: Rows) -> int | None:
        """The length of all of these; None where they differ."""
        lengths = self.lengths[rows]
        return int(lengths[0]) if (lengths == lengths[0]).all() else None

    def matrix(self, rows: Rows, length: int) -> NDArray[np.uint8]:
        """A line of bytes for each of these rows, all of which are so long."""
        if not length:
            return np.empty((len(rows), 0), np.uint8)
        # A window on the data at every byte: no copy until the rows are picked.
        windows = np.lib.stride_tricks.sliding_window_view(self.data, length)
        picked: NDArray[np.uint8] = windows[self.begins[rows]]
        return picked

    def strings(self, rows: Rows) -> Iterator[bytes]:
        """One by one."""
        data = self.data.data
        ends = self.begins + self.lengths
        return (
            bytes(data[begin:end])
            for begin, end in zip(self.begins[rows].tolist(), ends[rows].tolist(), strict=True)
        )


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The rows of one Arrow batch that go to one topic and have no headers."""

    count: int
    keys: BytesColumn | None
    """None where no row has one."""
    values: BytesColumn | None
    """None where all are null."""
    partitions: NDArray[np.int64] | None
    """As the rows say; None where they do not."""

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> RecordColumns | None:
        """None for rows that have to be looked at one by one: some nulls, headers, topics."""
        count = batch.num_rows
        filled = {
            name: column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
            if name in _LOOKED_AT and column.null_count < count
        }
        if "headers" in filled or any(column.null_count for column in filled.values()):
            return None
        keys, values, partitions = (filled.get(name) for name in ("key", "value", "partition"))
        return cls(
            count,
            None if keys is None else BytesColumn.of(keys),
            None if values is None else BytesColumn.of(values),
            None if partitions is None else partitions.to_numpy().astype(np.int64),
        )

    def sizes(self) -> NDArray[np.int64]:
        """What each row counts for in a batch that is filled."""
        sizes = np.full(self.count, PER_RECORD_BYTES, np.int64)
        for column in (self.keys, self.values):
            if column is not None:
                sizes += column.lengths
        return sizes

    def keyed_partitions(self, count: int) -> NDArray[np.int64]:
        """Where each row goes by its key, of ``count`` partitions."""
        assert self.keys is not None, "rows without keys go elsewhere"
        found = np.empty(self.count, np.int64)
        for length in np.unique(self.keys.lengths).tolist():
            rows = np.flatnonzero(self.keys.lengths == length)
            if len(rows) < _GROUP_MIN:
                found[rows] = [keyed_partition(key, count) for key in self.keys.strings(rows)]
            else:
                hashed = murmur2_of(self.keys.matrix(rows, length)) & np.uint32(0x7FFFFFFF)
                found[rows] = hashed % np.uint32(count)
        return found

    def encoded(self, rows: Rows, first: int) -> list[bytes]:
        """The records of these rows in pieces, the first of them at offset delta ``first``."""
        lengths = [
            -1 if column is None else column.common_length(rows)
            for column in (self.keys, self.values)
        ]
        key_length, value_length = lengths
        if len(rows) < _MATRIX_MIN or key_length is None or value_length is None:
            keys, values = (
                [None] * len(rows) if column is None else column.strings(rows)
                for column in (self.keys, self.values)
            )
            return encoded_pairs(list(zip(keys, values, strict=True)), first)
        return [
            self._matrix(rows[done : done + count], first + done, key_length, value_length)
            for done, count in runs_of_deltas(first, len(rows))
        ]

    def _matrix(self, rows: Rows, first: int, key_length: int, value_length: int) -> bytes:
        """Records of one layout, whose offset deltas take the same number of bytes."""
        deltas = 2 * np.arange(first, first + len(rows))
        width = len(encode_varint(first))
        key_size, value_size = (
            NULL if length < 0 else encode_varint(length) for length in (key_length, value_length)
        )
        key_bytes, value_bytes = max(0, key_length), max(0, value_length)
        body = 2 + width + len(key_size) + key_bytes + len(value_size) + value_bytes + 1
        length = encode_varint(body)
        records = np.zeros((len(rows), len(length) + body), np.uint8)
        records[:, : len(length)] = np.frombuffer(length, np.uint8)
        place = len(length) + 2
        for number in range(width):
            more = 0x80 if number < width - 1 else 0
            records[:, place + number] = deltas >> 7 * number & 0x7F | more
        place += width
        for size, column, count in (
            (key_size, self.keys, key_bytes),
            (value_size, self.values, value_bytes),
        ):
            records[:, place : place + len(size)] = np.frombuffer(size, np.uint8)
            place += len(size)
            if column is not None:
                records[:, place : place + count] = column.matrix(rows, count)
            place += count
        return records.tobytes()


def murmur2_of(keys: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Kafka's 32-bit murmur2 of each line, unsigned; ``protocol/hashing.py`` has it for one key."""
    count, length = keys.shape
    factor = np.uint32(MURMUR2_FACTOR)
    hashed = np.full(count, MURMUR2_SEED ^ length, np.uint32)
    whole = length & ~3
    words = np.ascontiguousarray(keys[:, :whole]).view("<u4").astype(np.uint32, copy=False)
    for column in words.T:
        mixed = column * factor
        mixed ^= mixed >> np.uint32(24)
        hashed = hashed * factor ^ mixed * factor
    if whole < length:
        tail = np.zeros(count, np.uint32)
        for number in range(length - whole):
            tail |= keys[:, whole + number].astype(np.uint32) << np.uint32(8 * number)
        hashed = (hashed ^ tail) * factor
    hashed ^= hashed >> np.uint32(13)
    hashed = hashed * factor
    hashed ^= hashed >> np.uint32(15)
    return hashed
