"""Starts and ends of a frame as offsets of partitions, looked up in the cluster.

Source: docs/spec/pipeline.md §3.1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.pipeline import cluster_requests
from barnabas.pipeline.blocking_client import BlockingClient, client_for
from barnabas.protocol.errors import ErrorCode

from .errors import BadOption, DataLost, ProgressLost
from .offsets_json import EARLIEST, LATEST, Offsets, names
from .options import Bound, BoundKind, TopicOptions

log = logging.getLogger(__name__)


class OffsetLookup:
    """The partitions and offsets that a frame's options speak of, as the cluster has them now.

    Nothing of it is a connection: it may be pickled and used in another process.
    """

    def __init__(self, options: TopicOptions) -> None:
        self.options = options

    @property
    def client(self) -> BlockingClient:
        """The connections of this process."""
        return client_for(*self.options.address)

    def topic_partitions(self) -> list[TopicPartition]:
        """The partitions selected; raises KafkaError for a topic that is not there."""
        selection, cluster = self.options.selection, self.client.cluster
        if selection.pattern is not None:
            return self.client.run(cluster_requests.partitions_like(cluster, selection.pattern))
        if selection.topics:
            return self.client.run(cluster_requests.partitions_of(cluster, selection.topics))
        topics = {topic_partition.topic for topic_partition in selection.topic_partitions}
        there = set(self.client.run(cluster_requests.partitions_of(cluster, topics)))
        missing = [
            topic_partition
            for topic_partition in selection.topic_partitions
            if topic_partition not in there
        ]
        if missing:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, names(missing))
        return list(selection.topic_partitions)

    def earliest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset kept of each partition."""
        return self._at(dict.fromkeys(topic_partitions, EARLIEST))

    def latest(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition, of what readers of committed records see if we are such."""
        return self._at(dict.fromkeys(topic_partitions, LATEST))

    def resolved(
        self, bound: Bound, topic_partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """A start or an end as an offset in each partition."""
        match bound.kind:
            case BoundKind.EARLIEST:
                return self.earliest(topic_partitions)
            case BoundKind.LATEST:
                return self.latest(topic_partitions)
            case BoundKind.GROUP:
                return self._of_group(bound, topic_partitions)
            case BoundKind.OFFSETS:
                return self._given(bound, topic_partitions)
            case BoundKind.TIME:
                return self._at_times(bound, topic_partitions)

    def start(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the frame starts, checked: what is asked for below the log's start is lost."""
        bound = self.options.start
        found = self.resolved(bound, topic_partitions)
        if bound.kind in (BoundKind.EARLIEST, BoundKind.LATEST):
            return found
        return self.kept(found)

    def since(self, start: Offsets, end: Offsets, time_ms: int) -> dict[TopicPartition, int]:
        """``start`` moved up to the first record that is not older than ``time_ms``."""
        found = self._at(dict.fromkeys(start, time_ms))
        return {
            topic_partition: max(
                first,
                found[topic_partition] if found[topic_partition] >= 0 else end[topic_partition],
            )
            for topic_partition, first in start.items()
        }

    def kept(self, start: Offsets) -> dict[TopicPartition, int]:
        """``start``, moved up to what the log still has; raises DataLost when that matters."""
        earliest = self.earliest(start)
        gone = [
            topic_partition
            for topic_partition in start
            if start[topic_partition] < earliest[topic_partition]
        ]
        if gone:
            topic_partition = gone[0]
            self.lost(
                f"{names([topic_partition])} begins at {earliest[topic_partition]}, "
                f"asked for was {start[topic_partition]}"
            )
        return {
            topic_partition: max(start[topic_partition], earliest[topic_partition])
            for topic_partition in start
        }

    def lost(self, problem: str) -> None:
        """Raise DataLost, or only say it in the log if that is what the user wants."""
        if self.options.fail_on_data_loss:
            raise DataLost(problem)
        log.warning("lost data problem=%s", problem)

    def _at(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        call = cluster_requests.offsets_at(self.client.cluster, times, self.options.isolation)
        return self.client.run(call)

    def _of_group(
        self, bound: Bound, topic_partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The group's offsets; where it has none, the earliest."""
        found = self.client.run(cluster_requests.committed(self.client.cluster, bound.group))
        missing = self.earliest(
            topic_partition for topic_partition in topic_partitions if topic_partition not in found
        )
        return {
            topic_partition: found.get(topic_partition, missing.get(topic_partition, 0))
            for topic_partition in topic_partitions
        }

    def _given(
        self, bound: Bound, topic_partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        assert bound.offsets is not None, "the parser saw to it"
        _check_all_named(bound, topic_partitions)
        special = {
            topic_partition: offset
            for topic_partition, offset in bound.offsets.items()
            if offset in (EARLIEST, LATEST) and topic_partition in topic_partitions
        }
        found = self._at(special)
        return {
            topic_partition: found.get(topic_partition, bound.offsets[topic_partition])
            for topic_partition in topic_partitions
        }

    def _at_times(
        self, bound: Bound, topic_partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        if bound.offsets is None:
            times = dict.fromkeys(topic_partitions, bound.time_ms)
        else:
            _check_all_named(bound, topic_partitions)
            times = {
                topic_partition: bound.offsets[topic_partition]
                for topic_partition in topic_partitions
            }
        found = self._at(times)
        late = [
            topic_partition for topic_partition in topic_partitions if found[topic_partition] < 0
        ]
        if late and not bound.is_lenient:
            raise BadOption(bound.option, f"no record of {names(late)} is that late")
        return {**found, **self.latest(late)}


def check_order(start: Offsets, end: Offsets) -> None:
    """Raise ProgressLost when a range ends before it starts: an empty batch would hide records."""
    for topic_partition, first in start.items():
        if topic_partition in end and end[topic_partition] < first:
            raise ProgressLost(
                f"{names([topic_partition])} is to be read from {first} up to "
                f"{end[topic_partition]}: "
                "the start was resolved anew after the end was fixed, or the log has shrunk"
            )


def _check_all_named(bound: Bound, topic_partitions: Sequence[TopicPartition]) -> None:
    assert bound.offsets is not None, "called for offsets by partition"
    missing = [
        topic_partition
        for topic_partition in topic_partitions
        if topic_partition not in bound.offsets
    ]
    if missing:
        raise BadOption(bound.option, f"every partition must be named; missing: {names(missing)}")
