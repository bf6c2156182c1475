"""One task of an archive: rows into Parquet files by topic and day, with an account of each.

Source: docs/spec/pipeline.md §2 step 1.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.client.cluster import TopicPartition

from .archive_files import file_digest
from .coverage import Coverage, Run

_OPEN_MAX: Final = 16
"""Files written at a time; when more days meet in one task, the oldest file is finished."""
_NO_DATE: Final = "undated"

TopicAndDay = tuple[str, str]
"""Topic and day."""


@dataclass
class WrittenFile:
    """What a task tells of one file."""

    temporary: str
    topic: str
    date: str
    rows: int
    size: int
    sha256: str
    ranges: list[tuple[int, int, list[Run]]] = field(default_factory=list)
    """Partition, rows of it, runs of offsets."""


class ArchiveFileWriter:
    """One open file."""

    def __init__(self, path: Path, topic_and_day: TopicAndDay, schema: pa.Schema) -> None:
        self._path = path
        self._topic_and_day = topic_and_day
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")
        self._covered: dict[int, Coverage] = {}
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows of this topic and day."""
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        partitions = batch.column("partition")
        for partition in pc.unique(partitions).to_pylist():
            rows = batch.filter(pc.equal(partitions, partition))
            covered = self._covered.setdefault(partition, Coverage())
            covered.add(rows.column("offset").to_pylist())

    def close(self) -> WrittenFile:
        """Finish the file so that it outlives a power cut under its temporary name."""
        self._writer.close()
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        topic, date = self._topic_and_day
        return WrittenFile(
            temporary=str(self._path),
            topic=topic,
            date=date,
            rows=self._rows,
            size=self._path.stat().st_size,
            sha256=file_digest(self._path),
            ranges=[
                (partition, covered.rows, covered.runs)
                for partition, covered in sorted(self._covered.items())
            ],
        )


def write_files(batches: Iterator[pa.RecordBatch], folder: Path) -> list[WrittenFile]:
    """Write the rows of one task; every file is complete and synced when this returns."""
    open_files: dict[TopicAndDay, ArchiveFileWriter] = {}
    written_files: list[WrittenFile] = []
    for batch in batches:
        for topic_and_day, rows in _by_topic_and_day(batch):
            if topic_and_day not in open_files:
                if len(open_files) >= _OPEN_MAX:
                    written_files.append(open_files.pop(next(iter(open_files))).close())
                path = folder / f"{uuid.uuid4().hex}.parquet"
                open_files[topic_and_day] = ArchiveFileWriter(path, topic_and_day, batch.schema)
            open_files[topic_and_day].write(rows)
    return written_files + [writer.close() for writer in open_files.values()]


def runs_by_partition(
    written_files: Sequence[WrittenFile],
) -> dict[TopicPartition, tuple[int, list[list[Run]]]]:
    """Rows and runs of each partition, over all files."""
    found: dict[TopicPartition, tuple[int, list[list[Run]]]] = {}
    for written_file in written_files:
        for partition, rows, runs in written_file.ranges:
            topic_partition = TopicPartition(written_file.topic, partition)
            count, parts = found.get(topic_partition, (0, []))
            found[topic_partition] = (count + rows, [*parts, runs])
    return found


def _by_topic_and_day(batch: pa.RecordBatch) -> Iterator[tuple[TopicAndDay, pa.RecordBatch]]:
    """The rows of a batch apart by topic and day; nearly always there is one of each."""
    if not batch.num_rows:
        return
    topics = batch.column("topic")
    dates = _dates(batch.column("timestamp"))
    for topic in pc.unique(topics).to_pylist():
        for date in pc.unique(dates).to_pylist():
            mask = pc.and_(pc.equal(topics, topic), pc.equal(dates, date))
            rows = batch.filter(mask)
            if rows.num_rows:
                yield (topic, date), rows


def _dates(stamps: Any) -> Any:
    """The day in UTC of each timestamp as text."""
    days = pc.cast(pc.cast(stamps, pa.timestamp("us", tz="UTC")), pa.date32())
    return pc.fill_null(pc.cast(days, pa.string()), _NO_DATE)
