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

from .address import Address, read_address
from .failures import BadOption
from .positions import EARLIEST, LATEST, parse, parse_places
from .words import Words

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
_ISOLATION: Final = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
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
    places: tuple[TopicPartition, ...] = ()


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

    address: Address
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
    words = Words(options)
    for name, why in _REFUSED.items():
        words.refuse(name, why)
    isolation = words.text("kafka.isolation.level") or "read_uncommitted"
    if isolation not in _ISOLATION:
        raise BadOption("kafka.isolation.level", f"{isolation} is none of {', '.join(_ISOLATION)}")
    found = TopicOptions(
        address=read_address(words),
        selection=_offsets_topic() if only_offsets_topic else _selection(words),
        start=_bound(words, "starting", BoundKind.LATEST if is_stream else BoundKind.EARLIEST),
        end=_end(words, is_stream),
        fail_on_data_loss=words.flag("failOnDataLoss", default=True),
        tasks_min=words.number("minPartitions"),
        records_max=words.number("maxRecordsPerPartition"),
        offsets_max=words.number("maxOffsetsPerTrigger"),
        offsets_min=words.number("minOffsetsPerTrigger"),
        delay_ms_max=words.duration_ms("maxTriggerDelay", 15 * 60_000),
        isolation=_ISOLATION[isolation],
        commit_group=words.text("commitGroup"),
        checkpoint=words.text("checkpointLocation"),
        poll_timeout_ms=words.count("kafkaConsumer.pollTimeoutMs", 120_000),
        retries=words.count("fetchOffset.numRetries", 3, least=0),
        retry_interval_ms=words.count("fetchOffset.retryIntervalMs", 1_000, least=0),
        fetch_bytes=words.count("kafka.max.partition.fetch.bytes", 8 << 20),
    )
    for name in ("columns", "includeHeaders", "kind", "groupIdPrefix"):
        words.text(name)
    words.refuse_unknown()
    if found.offsets_max and found.offsets_min and found.offsets_min > found.offsets_max:
        raise BadOption("minOffsetsPerTrigger", "is more than maxOffsetsPerTrigger")
    return found


def _offsets_topic() -> Selection:
    return Selection(topics=(_OFFSETS_TOPIC,))


def _selection(words: Words) -> Selection:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if words.is_given(name)]
    if len(given) != 1:
        raise BadOption("subscribe", "say exactly one of subscribe, subscribePattern and assign")
    if given == ["assign"]:
        places = parse_places("assign", words.needed("assign", '{"topic":[0]}'))
        return Selection(places=tuple(places))
    if given == ["subscribePattern"]:
        pattern = words.needed("subscribePattern", "events-.*")
        try:
            re.compile(pattern)
        except re.error as error:
            raise BadOption("subscribePattern", f"{pattern}: {error}") from error
        return Selection(pattern=pattern)
    return Selection(topics=tuple(sorted(set(words.words("subscribe")))))


def _end(words: Words, is_stream: bool) -> Bound:
    if is_stream:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            words.refuse(name, "a stream has no end")
    return _bound(words, "ending", BoundKind.LATEST)


def _bound(words: Words, edge: str, default: BoundKind) -> Bound:
    """A start or an end: one time, times by partition, or offsets, in this order."""
    is_lenient = edge == "ending"
    if edge == "starting":
        strategy = words.text("startingOffsetsByTimestampStrategy") or "error"
        if strategy not in ("error", "latest"):
            raise BadOption("startingOffsetsByTimestampStrategy", "is neither error nor latest")
        is_lenient = strategy == "latest"
    one, by_place = f"{edge}Timestamp", f"{edge}OffsetsByTimestamp"
    time_ms, times = words.number(one, least=0), words.text(by_place)
    where = words.text(f"{edge}Offsets")
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
    for place, offset in offsets.items():
        if offset < EARLIEST or offset == forbidden:
            raise BadOption(option, f"{offset} of {place.topic}-{place.partition}")
    assert LATEST > EARLIEST, "both are below every offset"
    return Bound(BoundKind.OFFSETS, option, offsets=offsets)
