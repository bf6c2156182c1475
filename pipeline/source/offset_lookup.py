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

    def places(self) -> list[TopicPartition]:
        """The partitions selected; raises KafkaError for a topic that is not there."""
        selection, cluster = self.options.selection, self.client.cluster
        if selection.pattern is not None:
            return self.client.run(cluster_requests.partitions_like(cluster, selection.pattern))
        if selection.topics:
            return self.client.run(cluster_requests.partitions_of(cluster, selection.topics))
        topics = {place.topic for place in selection.places}
        there = set(self.client.run(cluster_requests.partitions_of(cluster, topics)))
        missing = [place for place in selection.places if place not in there]
        if missing:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, names(missing))
        return list(selection.places)

    def earliest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset kept of each partition."""
        return self._at(dict.fromkeys(places, EARLIEST))

    def latest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition, of what readers of committed records see if we are such."""
        return self._at(dict.fromkeys(places, LATEST))

    def resolved(self, bound: Bound, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """A start or an end as an offset in each partition."""
        match bound.kind:
            case BoundKind.EARLIEST:
                return self.earliest(places)
            case BoundKind.LATEST:
                return self.latest(places)
            case BoundKind.GROUP:
                return self._of_group(bound, places)
            case BoundKind.OFFSETS:
                return self._given(bound, places)
            case BoundKind.TIME:
                return self._at_times(bound, places)

    def start(self, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the frame starts, checked: what is asked for below the log's start is lost."""
        bound = self.options.start
        found = self.resolved(bound, places)
        if bound.kind in (BoundKind.EARLIEST, BoundKind.LATEST):
            return found
        return self.kept(found)

    def since(self, start: Offsets, end: Offsets, time_ms: int) -> dict[TopicPartition, int]:
        """``start`` moved up to the first record that is not older than ``time_ms``."""
        found = self._at(dict.fromkeys(start, time_ms))
        return {
            place: max(first, found[place] if found[place] >= 0 else end[place])
            for place, first in start.items()
        }

    def kept(self, start: Offsets) -> dict[TopicPartition, int]:
        """``start``, moved up to what the log still has; raises DataLost when that matters."""
        earliest = self.earliest(start)
        gone = [place for place in start if start[place] < earliest[place]]
        if gone:
            place = gone[0]
            self.lost(
                f"{place.topic}-{place.partition} begins at {earliest[place]}, "
                f"asked for was {start[place]}"
            )
        return {place: max(start[place], earliest[place]) for place in start}

    def lost(self, problem: str) -> None:
        """Raise DataLost, or only say it in the log if that is what the user wants."""
        if self.options.fail_on_data_loss:
            raise DataLost(problem)
        log.warning("lost data problem=%s", problem)

    def _at(self, times: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        call = cluster_requests.offsets_at(self.client.cluster, times, self.options.isolation)
        return self.client.run(call)

    def _of_group(
        self, bound: Bound, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The group's offsets; where it has none, the earliest."""
        found = self.client.run(cluster_requests.committed(self.client.cluster, bound.group))
        missing = self.earliest(place for place in places if place not in found)
        return {place: found.get(place, missing.get(place, 0)) for place in places}

    def _given(self, bound: Bound, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        assert bound.offsets is not None, "the parser saw to it"
        _check_all_named(bound, places)
        special = {
            place: offset
            for place, offset in bound.offsets.items()
            if offset in (EARLIEST, LATEST) and place in places
        }
        found = self._at(special)
        return {place: found.get(place, bound.offsets[place]) for place in places}

    def _at_times(
        self, bound: Bound, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        if bound.offsets is None:
            times = dict.fromkeys(places, bound.time_ms)
        else:
            _check_all_named(bound, places)
            times = {place: bound.offsets[place] for place in places}
        found = self._at(times)
        late = [place for place in places if found[place] < 0]
        if late and not bound.is_lenient:
            raise BadOption(bound.option, f"no record of {names(late)} is that late")
        return {**found, **self.latest(late)}


def check_order(start: Offsets, end: Offsets) -> None:
    """Raise ProgressLost when a range ends before it starts: an empty batch would hide records."""
    for place, first in start.items():
        if place in end and end[place] < first:
            raise ProgressLost(
                f"{place.topic}-{place.partition} is to be read from {first} up to {end[place]}: "
                "the start was resolved anew after the end was fixed, or the log has shrunk"
            )


def _check_all_named(bound: Bound, places: Sequence[TopicPartition]) -> None:
    assert bound.offsets is not None, "called for offsets by partition"
    missing = [place for place in places if place not in bound.offsets]
    if missing:
        raise BadOption(bound.option, f"every partition must be named; missing: {names(missing)}")
