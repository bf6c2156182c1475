"""The options of a topic's frame, under the names that users of Spark's Kafka connector know.

Source: docs/spec/pipeline.md §3.1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas.client.cluster import TopicPartition

from .address import ClusterAddress, read_address
from .errors import BadOption
from .offsets_json import EARLIEST, LATEST, parse, parse_topic_partitions
from .spark_options import SparkOptions

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_ISOLATION: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
_ISOLATION_NAMES: Final = ("kafka.isolation.level", "isolation.level")
_OFFSETS_TOPIC: Final = "__consumer_offsets"
_REFUSED: Final = {
    "kafka.auto.offset.reset": "say startingOffsets instead",
    "kafka.key.deserializer": "keys are bytes; decode them with Spark's functions",
    "kafka.value.deserializer": "values are bytes; decode them with Spark's functions",
    "kafka.enable.auto.commit": "say commitGroup instead",
    "kafka.interceptor.classes": "interceptors are not supported",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Which partitions to read: exactly one of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    topic_partitions: tuple[TopicPartition, ...] = ()


class BoundKind(Enum):
    """What a start or an end is made from."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIME = "time"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to start or to end."""

    kind: BoundKind
    option: str
    """The option that says so, for messages."""
    offsets: Mapping[TopicPartition, int] | None = None
    """Offsets, or times in milliseconds, by partition."""
    time_ms: int = -1
    """For all partitions when ``offsets`` is None."""
    group: str = ""
    is_lenient: bool = False
    """No record that late means the end of the partition instead of a failure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """Everything there is to know about a topic's frame but its columns."""

    address: ClusterAddress
    selection: Selection
    start: Bound
    end: Bound
    """The latest offsets in a stream."""
    fail_on_data_loss: bool
    tasks_min: int | None
    records_max: int | None
    offsets_max: int | None
    offsets_min: int | None
    delay_ms_max: int
    isolation: int
    commit_group: str | None
    checkpoint: str | None
    """Where a stream keeps its progress; None when nobody told us."""
    poll_timeout_ms: int
    retries: int
    retry_interval_ms: int
    fetch_bytes: int


def topic_options(
    options: Mapping[str, str], *, is_stream: bool, only_offsets_topic: bool = False
) -> TopicOptions:
    """Read the options of a topic's frame; raises BadOption.

    ``only_offsets_topic`` is for the mode that decodes ``__consumer_offsets``.
    """
    spark_options = SparkOptions(options)
    for name, why in _REFUSED.items():
        spark_options.refuse(name, why)
    found = TopicOptions(
        address=read_address(spark_options),
        selection=_offsets_topic() if only_offsets_topic else _selection(spark_options),
        start=_bound(
            spark_options, "starting", BoundKind.LATEST if is_stream else BoundKind.EARLIEST
        ),
        end=_end(spark_options, is_stream),
        fail_on_data_loss=spark_options.flag("failOnDataLoss", default=True),
        tasks_min=spark_options.number("minPartitions"),
        records_max=spark_options.number("maxRecordsPerPartition"),
        offsets_max=spark_options.number("maxOffsetsPerTrigger"),
        offsets_min=spark_options.number("minOffsetsPerTrigger"),
        delay_ms_max=spark_options.duration_ms("maxTriggerDelay", 15 * 60_000),
        isolation=read_isolation(spark_options),
        commit_group=spark_options.text("commitGroup"),
        checkpoint=spark_options.text("checkpointLocation"),
        poll_timeout_ms=spark_options.count("kafkaConsumer.pollTimeoutMs", 120_000),
        retries=spark_options.count("fetchOffset.numRetries", 3, least=0),
        retry_interval_ms=spark_options.count("fetchOffset.retryIntervalMs", 1_000, least=0),
        fetch_bytes=spark_options.count("kafka.max.partition.fetch.bytes", 8 << 20),
    )
    for name in ("columns", "includeHeaders", "kind", "groupIdPrefix"):
        spark_options.text(name)
    spark_options.refuse_unknown()
    if found.offsets_max and found.offsets_min and found.offsets_min > found.offsets_max:
        raise BadOption("minOffsetsPerTrigger", "is more than maxOffsetsPerTrigger")
    return found


def read_isolation(spark_options: SparkOptions) -> int:
    """READ_COMMITTED or READ_UNCOMMITTED, under Spark's name for it or under Kafka's."""
    given = [name for name in _ISOLATION_NAMES if spark_options.is_given(name)]
    levels = {spark_options.needed(name, "read_committed") for name in given}
    if len(levels) > 1:
        raise BadOption(given[0], f"{given[1]} says something else")
    level = next(iter(levels), "read_uncommitted")
    if level not in _ISOLATION:
        raise BadOption(given[0], f"{level} is none of {', '.join(_ISOLATION)}")
    return _ISOLATION[level]


def _offsets_topic() -> Selection:
    return Selection(topics=(_OFFSETS_TOPIC,))


def _selection(spark_options: SparkOptions) -> Selection:
    given = [
        name for name in ("assign", "subscribe", "subscribePattern") if spark_options.is_given(name)
    ]
    if len(given) != 1:
        raise BadOption("subscribe", "say exactly one of subscribe, subscribePattern and assign")
    if given == ["assign"]:
        topic_partitions = parse_topic_partitions(
            "assign", spark_options.needed("assign", '{"topic":[0]}')
        )
        return Selection(topic_partitions=tuple(topic_partitions))
    if given == ["subscribePattern"]:
        pattern = spark_options.needed("subscribePattern", "events-.*")
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadOption("subscribePattern", f"{pattern}: {error}") from error
        return Selection(pattern=pattern)
    return Selection(topics=tuple(sorted(set(spark_options.texts("subscribe")))))


def _end(spark_options: SparkOptions, is_stream: bool) -> Bound:
    if is_stream:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            spark_options.refuse(name, "a stream has no end")
    return _bound(spark_options, "ending", BoundKind.LATEST)


def _bound(spark_options: SparkOptions, edge: str, default: BoundKind) -> Bound:
    """A start or an end: one time, times by partition, or offsets, in this order."""
    is_lenient = edge == "ending"
    if edge == "starting":
        strategy = spark_options.text("startingOffsetsByTimestampStrategy") or "error"
        if strategy not in ("error", "latest"):
            raise BadOption("startingOffsetsByTimestampStrategy", "is neither error nor latest")
        is_lenient = strategy == "latest"
    one, by_place = f"{edge}Timestamp", f"{edge}OffsetsByTimestamp"
    time_ms, times = spark_options.number(one, least=0), spark_options.text(by_place)
    where = spark_options.text(f"{edge}Offsets")
    if time_ms is not None:
        return Bound(BoundKind.TIME, one, time_ms=time_ms, is_lenient=is_lenient)
    if times is not None:
        found = parse(by_place, times)
        return Bound(BoundKind.TIME, by_place, offsets=found, is_lenient=is_lenient)
    return _offsets_bound(f"{edge}Offsets", where, default)


def _offsets_bound(option: str, where: str | None, default: BoundKind) -> Bound:
    is_start = option.startswith("starting")
    if where is None:
        return Bound(default, option)
    if where.lower() in ("earliest", "latest"):
        if not is_start and where.lower() == "earliest":
            raise BadOption(option, "nothing ends at the earliest offsets")
        return Bound(BoundKind(where.lower()), option)
    if is_start and where.startswith("group:") and where != "group:":
        return Bound(BoundKind.GROUP, option, group=where.removeprefix("group:"))
    offsets = parse(option, where)
    forbidden = EARLIEST if not is_start else None
    for topic_partition, offset in offsets.items():
        if offset < EARLIEST or offset == forbidden:
            raise BadOption(
                option, f"{offset} of {topic_partition.topic}-{topic_partition.partition}"
            )
    assert LATEST > EARLIEST, "both are below every offset"
    return Bound(BoundKind.OFFSETS, option, offsets=offsets)
