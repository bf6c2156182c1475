"""Filters that Spark hands to a source, as bounds on what is read at all.

Only an equal partition is settled by reading less; everything else narrows the plan and is
checked again by Spark. Source: docs/spec/pipeline.md §1.3 trap 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from barnabas.client.cluster import TopicPartition

from .task_planning import OffsetRange

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_COMPARED: Final = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


class PushedFilters:
    """What is left to read after the filters taken so far, all of which hold together."""

    def __init__(self) -> None:
        self.since_ms: int | None = None
        """No record below the first one of this time is wanted; later ones may be older."""
        self._topics: set[str] | None = None
        self._partitions: set[int] | None = None
        self._first = 0
        self._end: int | None = None

    def push(self, filters: Iterable[Filter]) -> Iterator[Filter]:
        """Take what can be taken; yield the filters that Spark must apply itself."""
        for condition in filters:
            self._take(condition)
            if not (isinstance(condition, EqualTo) and condition.attribute == ("partition",)):
                yield condition

    def has(self, topic_partition: TopicPartition) -> bool:
        """Whether anything of this partition may pass."""
        return (self._topics is None or topic_partition.topic in self._topics) and (
            self._partitions is None or topic_partition.partition in self._partitions
        )

    def narrowed(self, wanted: OffsetRange) -> OffsetRange:
        """The part of a range whose offsets may pass; it may be empty."""
        start = max(wanted.start, self._first)
        end = wanted.end if self._end is None else min(wanted.end, self._end)
        return OffsetRange(wanted.topic_partition, start, max(start, end))

    def _take(self, condition: Filter) -> None:
        if isinstance(condition, In):
            self._only(condition.attribute, set(condition.value))
        elif isinstance(condition, EqualTo) and condition.attribute in (("topic",), ("partition",)):
            self._only(condition.attribute, {condition.value})
        elif isinstance(condition, _COMPARED) and condition.attribute == ("offset",):
            self._compare_offset(condition)
        elif isinstance(condition, _COMPARED) and condition.attribute == ("timestamp",):
            self._compare_time(condition)

    def _only(self, attribute: tuple[str, ...], values: set[Any]) -> None:
        if attribute == ("topic",):
            self._topics = values if self._topics is None else self._topics & values
        elif attribute == ("partition",):
            self._partitions = values if self._partitions is None else self._partitions & values
        elif attribute == ("offset",) and values:
            self._first = max(self._first, min(values))
            self._ends_at(max(values) + 1)

    def _compare_offset(self, condition: Any) -> None:
        if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
            self._first = max(self._first, condition.value + isinstance(condition, GreaterThan))
        if isinstance(condition, EqualTo | LessThan | LessThanOrEqual):
            self._ends_at(condition.value + (not isinstance(condition, LessThan)))

    def _compare_time(self, condition: Any) -> None:
        """Times may jump back from record to record, so only the first one tells anything."""
        if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
            stamp = (condition.value - _EPOCH) // _MS
            self.since_ms = stamp if self.since_ms is None else max(self.since_ms, stamp)

    def _ends_at(self, end: int) -> None:
        self._end = end if self._end is None else min(self._end, end)
