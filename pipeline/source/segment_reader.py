"""Segment files as a frame, with no broker running: every task walks files of its own.

What is read was written, not necessarily acknowledged: nobody is there to say how far the high
watermark is. How transactions ended is told by the markers in the files themselves.
Source: docs/spec/pipeline.md §5; docs/spec/log.md §3.4.
"""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from barnabas.protocol.records.walk import Stop, walk

from .errors import BadOption, DataLost
from .filter_pushdown import PushedFilters
from .options import READ_COMMITTED, read_isolation
from .rows import Builder, Rows
from .segment_files import SegmentFile, find_segments, packed
from .segment_transactions import OFFSET_MAX, Hidden, hidden_records
from .spark_options import SparkOptions
from .task_planning import OffsetRange
from .unpacking import Unpacker

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_TASK_BYTES: Final = 128 << 20
_OFFSETS_TOPIC: Final = "__consumer_offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOptions:
    """What to read of which directories."""

    paths: tuple[str, ...]
    topics: frozenset[str]
    """Empty for all that are there."""
    task_bytes: int
    fail_on_data_loss: bool
    isolation: int


def segment_options(options: Mapping[str, str]) -> SegmentOptions:
    """Read the options of a frame of segments; raises BadOption."""
    spark_options = SparkOptions(options)
    is_decoded = spark_options.text("mode") == "commits"
    paths = spark_options.texts("path") + spark_options.texts("paths")
    if not paths:
        raise BadOption("path", "is missing; for example /var/lib/kafka/data")
    topics = [_OFFSETS_TOPIC] if is_decoded else spark_options.texts("subscribe")
    found = SegmentOptions(
        paths=tuple(paths),
        topics=frozenset(topics),
        task_bytes=spark_options.count("segmentBytesPerTask", _TASK_BYTES),
        fail_on_data_loss=spark_options.flag("failOnDataLoss", default=True),
        isolation=read_isolation(spark_options),
    )
    for name in ("columns", "includeHeaders", "kind"):
        spark_options.text(name)
    spark_options.refuse_unknown()
    return found


class SegmentTask(InputPartition):
    """The files that one task reads, and what is hidden of each; None hides nothing."""

    def __init__(
        self, value: Sequence[SegmentFile], hidden: Mapping[str, Hidden] | None = None
    ) -> None:
        super().__init__(list(value))
        self.hidden = hidden


class SegmentReader(DataSourceReader):
    """Reads the files that are there when the query is planned."""

    def __init__(self, options: SegmentOptions, builder: Builder) -> None:
        self._options = options
        self._builder = builder
        self._pushed = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """A task for so many bytes; a segment is never divided."""
        topics, pushed = self._options.topics, self._pushed
        found = find_segments(self._options.paths)
        followers: Sequence[SegmentFile | None] = [*found[1:], None]
        segments = [
            segment
            for segment, next_one in zip(found, followers, strict=True)
            if (not topics or segment.topic_partition.topic in topics)
            and pushed.has(segment.topic_partition)
            and pushed.narrowed(_offsets_of(segment, next_one)).size
        ]
        if self._options.isolation != READ_COMMITTED:
            return [SegmentTask(pack) for pack in packed(segments, self._options.task_bytes)]
        chosen = {segment.topic_partition for segment in segments}
        hidden = hidden_records(one for one in found if one.topic_partition in chosen)
        stable = [one for one in segments if one.base_offset < hidden[one.path].end]
        return [
            SegmentTask(pack, {segment.path: hidden[segment.path] for segment in pack})
            for pack in packed(stable, self._options.task_bytes)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of one task, on an executor."""
        hidden = (partition.hidden if isinstance(partition, SegmentTask) else None) or {}
        for segment in partition.value or ():
            for rows in self._rows(segment, hidden.get(segment.path)):
                made = self._builder.build(segment.topic_partition, rows)
                if made.num_rows:
                    yield made

    def _rows(self, segment: SegmentFile, hidden: Hidden | None) -> Iterator[Rows]:
        needs_records = self._builder.needs_records
        try:
            yield from read_segment(segment, needs_records=needs_records, hidden=hidden)
        except (FileNotFoundError, DamagedSegment) as problem:
            if self._options.fail_on_data_loss:
                raise DataLost(f"{segment.path}: {problem}") from problem
            log.warning("skipped the rest of a segment path=%s problem=%s", segment.path, problem)


class FilteringSegmentReader(SegmentReader):
    """The same where Spark hands filters over: files that cannot matter are not opened."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the plan; yields what Spark must check itself."""
        return self._pushed.push(filters)


def _offsets_of(segment: SegmentFile, next_one: SegmentFile | None) -> OffsetRange:
    """The offsets that may be in a segment: those below the next segment of its log."""
    end = OFFSET_MAX
    # Another directory may hold a copy of the log, which is a log of its own.
    if next_one is not None and Path(next_one.path).parent == Path(segment.path).parent:
        end = next_one.base_offset
    return OffsetRange(segment.topic_partition, segment.base_offset, end)


class DamagedSegment(Exception):  # noqa: N818 - reads as what happened
    """A segment with something in it that is no entry, or a cut entry where more follows."""


def read_segment(
    segment: SegmentFile, *, needs_records: bool, hidden: Hidden | None = None
) -> Iterator[Rows]:
    """The rows of one file; markers of transactions are left out, and what is ``hidden``.

    An entry that is cut at the very end of a log was being written: the file ends before it.
    Raises DamagedSegment after the last good entry.
    """
    if not segment.size:
        return
    unpacker = Unpacker(
        segment.topic_partition,
        0,
        OFFSET_MAX if hidden is None else hidden.end,
        needs_records=needs_records,
        aborted=None if hidden is None else hidden.aborted,
        is_verified=True,
    )
    with (
        Path(segment.path).open("rb") as file,
        mmap.mmap(file.fileno(), segment.size, access=mmap.ACCESS_READ) as data,
    ):
        steps = walk(data, base_offset=segment.base_offset)
        for entry in steps:
            rows = unpacker.take(entry.data, 0)
            if rows is not None:
                yield rows
    rows = unpacker.drain()
    if rows is not None:
        yield rows
    if steps.stop is not Stop.END and not (steps.stop is Stop.PARTIAL and segment.is_last):
        raise DamagedSegment(f"{steps.reason} at byte {steps.valid_bytes} of {segment.size}")
