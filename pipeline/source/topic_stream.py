"""A topic as a stream: where batches begin and end, how large they are, what a group is told.

Lives in one worker beside the driver as long as the query; what executors get is only the tasks.
Source: docs/spec/pipeline.md §1.2, §1.3 and §3.1.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.pipeline import cluster_requests

from .checkpoint import Checkpoint
from .offset_lookup import OffsetLookup, check_order
from .offsets_json import Offsets, Written, names, read, written
from .options import TopicOptions
from .rows import Builder
from .task_planning import OffsetRange, limited, split
from .topic_batch import Task, read_task

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batch after batch; the names of its methods are Spark's."""

    def __init__(self, options: TopicOptions, builder: Builder) -> None:
        self._options = options
        self._builder = builder
        self._lookup = OffsetLookup(options)
        self._initial: Offsets | None = None
        self._target: Offsets | None = None
        """Where a query ends that takes only what is there now."""
        self._seen: Offsets | None = None
        self._batch_s = float("-inf")
        """When the last batch began, by the monotonic clock."""

    def initialOffset(self) -> Written:  # noqa: N802
        """Where the first batch starts, the same however often it is asked: also after a crash."""
        if self._initial is None:
            self._initial = self._resolved_once()
        return written(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that the options set; least and most together are ours to keep."""
        if self._options.offsets_max is not None:
            return ReadMaxRows(self._options.offsets_max)
        if self._options.offsets_min is not None:
            return ReadMinRows(self._options.offsets_min)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> Written:  # noqa: N802
        """Where the next batch ends: at ``start`` while there is nothing, or not enough, to do."""
        before = read(start)
        latest = self._available(before)
        begins = {**self._begins_of_new(before, latest), **before}
        if self._must_wait(begins, latest, limit):
            return written(before)
        if isinstance(limit, ReadMaxRows):
            latest = limited(begins, latest, limit.max_rows)
        if latest != before:
            self._batch_s = time.monotonic()
        return written(latest)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query at what is there now."""
        self._target = self._lookup.latest(self._lookup.topic_partitions())

    def reportLatestOffset(self) -> Written | None:  # noqa: N802
        """The end of the topics as last seen, for the query's progress."""
        return None if self._seen is None else written(self._seen)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of one batch; raises ProgressLost when it would end before it starts."""
        before, after = read(start), read(end)
        begins = {**self._begins_of_new(before, after), **before}
        if self._options.fail_on_data_loss:
            check_order(begins, after)
        begins = self._lookup.kept(
            {topic_partition: begins[topic_partition] for topic_partition in after}
        )
        ranges = [
            OffsetRange(topic_partition, begins[topic_partition], after[topic_partition])
            for topic_partition in sorted(after)
        ]
        options = self._options
        tasks = split(ranges, tasks_min=options.tasks_min, records_max=options.records_max)
        return [Task(wanted) for wanted in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The Arrow batches of one task, on an executor."""
        return read_task(partition, self._options, self._builder)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the group how far the stream is; Spark calls this one batch late."""
        group = self._options.commit_group
        if group is None:
            return
        client = self._lookup.client
        try:
            client.run(cluster_requests.commit(client.cluster, group, read(end)))
        except KafkaError as error:
            if not error.retriable:
                raise
            log.warning("could not commit group=%s error=%s", group, error)

    def _resolved_once(self) -> Offsets:
        kept = Checkpoint(self._options.checkpoint) if self._options.checkpoint else None
        found = kept.initial() if kept else None
        if found is None:
            found = self._lookup.start(self._lookup.topic_partitions())
            if kept:
                kept.keep_initial(found)
        return found

    def _available(self, before: Offsets) -> dict[TopicPartition, int]:
        """The ends as the brokers have them, asked again while they lie before ``before``."""
        topic_partitions = self._lookup.topic_partitions()
        gone = [
            topic_partition for topic_partition in before if topic_partition not in topic_partitions
        ]
        if gone:
            self._lookup.lost(f"{names(gone)} is gone")
        latest = self._lookup.latest(topic_partitions)
        for _ in range(self._options.retries):
            if not _shrunk(before, latest):
                break
            time.sleep(self._options.retry_interval_ms / 1000)
            latest = self._lookup.latest(topic_partitions)
        for topic_partition in _shrunk(before, latest):
            self._lookup.lost(
                f"{names([topic_partition])} ended at {before[topic_partition]}, "
                f"now at {latest[topic_partition]}"
            )
        self._seen = latest
        if self._target is None:
            return latest
        return {
            topic_partition: min(
                latest[topic_partition], max(end, before.get(topic_partition, end))
            )
            for topic_partition, end in self._target.items()
            if topic_partition in latest
        }

    def _begins_of_new(self, before: Offsets, after: Offsets) -> dict[TopicPartition, int]:
        """Partitions that came later are read from their beginning."""
        new = [topic_partition for topic_partition in after if topic_partition not in before]
        return self._lookup.earliest(new) if new else {}

    def _must_wait(self, begins: Offsets, latest: Offsets, limit: ReadLimit) -> bool:
        least = self._options.offsets_min
        if least is None or self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        backlog = sum(
            max(0, latest[topic_partition] - begins[topic_partition]) for topic_partition in latest
        )
        waited_ms = (time.monotonic() - self._batch_s) * 1000
        return backlog < least and waited_ms < self._options.delay_ms_max


def _shrunk(before: Offsets, latest: Offsets) -> list[TopicPartition]:
    return [
        topic_partition
        for topic_partition in latest
        if latest[topic_partition] < before.get(topic_partition, 0)
    ]
