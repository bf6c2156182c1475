"""A topic, or several, as a frame: planned beside the driver, read on executors.

Source: docs/spec/pipeline.md §1.2, §1.3 and §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from .filter_pushdown import PushedFilters
from .offset_lookup import OffsetLookup, check_order
from .options import TopicOptions
from .rows import Builder
from .task_planning import OffsetRange, split

if TYPE_CHECKING:
    import pyarrow as pa


class Task(InputPartition):
    """One range for one task; what Spark makes up when there are none has no range."""

    def __init__(self, value: OffsetRange | None) -> None:
        super().__init__(value)


def read_task(
    partition: InputPartition, options: TopicOptions, builder: Builder
) -> Iterator[pa.RecordBatch]:
    """The Arrow batches of one task."""
    from .broker_read import read_range  # on executors; who plans reads nothing

    wanted: OffsetRange | None = partition.value
    if wanted is None:
        return
    for rows in read_range(wanted, options, needs_records=builder.needs_records):
        made = builder.build(wanted.topic_partition, rows)
        if made.num_rows:
            yield made


class TopicReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: TopicOptions, builder: Builder) -> None:
        self._options = options
        self._builder = builder
        self._pushed = PushedFilters()

    def partitions(self) -> Sequence[InputPartition]:
        """One task a partition that has records, or as many as the options ask for."""
        lookup, pushed = OffsetLookup(self._options), self._pushed
        topic_partitions = [
            topic_partition
            for topic_partition in lookup.topic_partitions()
            if pushed.has(topic_partition)
        ]
        start = lookup.start(topic_partitions)
        end = lookup.resolved(self._options.end, topic_partitions)
        check_order(start, end)
        if pushed.since_ms is not None:
            start = lookup.since(start, end, pushed.since_ms)
        ranges = [
            pushed.narrowed(
                OffsetRange(topic_partition, start[topic_partition], end[topic_partition])
            )
            for topic_partition in topic_partitions
        ]
        options = self._options
        tasks = split(ranges, tasks_min=options.tasks_min, records_max=options.records_max)
        return [Task(wanted) for wanted in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of one task, on an executor."""
        return read_task(partition, self._options, self._builder)


class FilteringTopicReader(TopicReader):
    """The same where Spark hands filters over, which it refuses to do unless it was told to."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Narrow the plan; yields what Spark must check itself."""
        return self._pushed.push(filters)
