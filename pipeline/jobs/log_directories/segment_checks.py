"""One segment looked at from end to end: its entries, and whether its offset index fits them.

Runs on executors; nothing is written. Source: docs/spec/pipeline.md §4, job 6;
docs/spec/log.md §2.3 and §3.4.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from barnabas.client.cluster import TopicPartition
from barnabas.pipeline.source.segment_files import SegmentFile
from barnabas.protocol.log_files.index_entries import offset_entries
from barnabas.protocol.records import batch
from barnabas.protocol.records.compression.codecs import Codec
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.walk import Stop, walk

SCHEMA: Final = (
    StructType()
    .add("file", StringType())
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("bytes", LongType())
    .add("batches", LongType())
    .add("records", LongType())
    .add("first_offset", LongType())
    .add("last_offset", LongType())
    .add("max_ts", LongType())
    .add("magic", StringType())
    .add("codec", StringType())
    .add("bad_log", StringType())
    .add("bad_index", StringType())
)
"""``magic`` and ``codec``: how many batches of each; what is bad says where, or is null."""
FILES: Final = "path string, topic string, partition int, base bigint, size bigint, last boolean"


def check_all(
    batches: Iterator[pa.RecordBatch], schema: pa.Schema, *, opens_records: bool
) -> Iterator[pa.RecordBatch]:
    """A row for each file listed in ``batches``."""
    for listed in batches:
        for row in listed.to_pylist():
            file = SegmentFile(
                TopicPartition(row["topic"], row["partition"]), row["path"], row["base"],
                row["size"], row["last"],
            )  # fmt: skip
            yield pa.RecordBatch.from_pylist(
                [check(file, opens_records=opens_records)], schema=schema
            )


def check(file: SegmentFile, *, opens_records: bool) -> dict[str, Any]:
    """The figures of one segment; with ``opens_records`` each batch is decompressed and read.

    Messages of magic 0 and 1 always are: a compressed one does not say how many it holds.
    """
    found = _Figures(file)
    if not file.size:
        return found.row(None)
    with (
        Path(file.path).open("rb") as opened,
        mmap.mmap(opened.fileno(), file.size, access=mmap.ACCESS_READ) as data,
    ):
        steps = walk(data, base_offset=file.base_offset)
        for entry in steps:
            problem = found.add(entry.position, entry.data, opens_records=opens_records)
            if problem is not None:
                return found.row(f"at byte {entry.position}: {problem}")
    if steps.stop is Stop.END or (steps.stop is Stop.PARTIAL and file.is_last):
        return found.row(None)
    return found.row(f"at byte {steps.valid_bytes}: {steps.reason}")


class _Figures:
    """What is gathered on the way through a segment."""

    def __init__(self, file: SegmentFile) -> None:
        self._file = file
        self._positions: dict[int, int] = {}
        self._records = 0
        self._last: int | None = None
        self._max_ts = -1
        self._magics: Counter[str] = Counter()
        self._codecs: Counter[str] = Counter()

    def add(self, position: int, data: bytes, *, opens_records: bool) -> str | None:
        """Take in one entry; why its records cannot be read."""
        self._positions[position] = batch.base_offset(data)
        self._last = batch.last_offset(data)
        self._max_ts = max(self._max_ts, batch.max_timestamp(data))
        self._magics[str(batch.magic(data))] += 1
        self._codecs[Codec(batch.codec(data)).name.lower()] += 1
        if not opens_records and batch.magic(data) == 2:
            self._records += batch.record_count(data)
            return None
        try:
            self._records += sum(1 for _ in batch.records(data))
        except CorruptRecords as problem:
            return str(problem)
        return None

    def row(self, bad_log: str | None) -> dict[str, Any]:
        """The row of this segment."""
        positions = list(self._positions.values())
        return {
            "file": self._file.path,
            "topic": self._file.topic_partition.topic,
            "partition": self._file.topic_partition.partition,
            "bytes": self._file.size,
            "batches": len(positions),
            "records": self._records,
            "first_offset": positions[0] if positions else None,
            "last_offset": self._last,
            "max_ts": self._max_ts if positions else None,
            "magic": _told(self._magics),
            "codec": _told(self._codecs),
            "bad_log": bad_log,
            "bad_index": self._bad_index(),
        }

    def _bad_index(self) -> str | None:
        """The first entry of the offset index that leads nowhere; null when there is no index."""
        path = Path(self._file.path).with_suffix(".index")
        if not path.is_file():
            return None
        previous = -1
        for number, entry in enumerate(offset_entries(path.read_bytes(), self._file.base_offset)):
            if number and entry.position == 0:
                break  # space that was reserved, never filled
            begins = self._positions.get(entry.position)
            if begins is None or begins > entry.offset or entry.offset <= previous:
                return f"entry {number}: offset {entry.offset} at byte {entry.position}"
            previous = entry.offset
        return None


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
