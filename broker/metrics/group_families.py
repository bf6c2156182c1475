"""Metrics of groups: our names, and those of other exporters where they are asked for.

Source: docs/spec/users.md §4 (names, labels, sums by default and partitions by choice).
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from barnabas.broker.settings.metrics_settings import MetricsSettings
from barnabas.client.cluster import TopicPartition
from barnabas.coordinator.group_coordinator import GroupCoordinator
from barnabas.coordinator.group_summary import (
    StagedCounts,
    count_staged,
    partitions_by_load_state,
)

from .exposition import Sample, family, single
from .group_lag_monitor import GroupLag, LagReport, PartitionLag
from .group_status import lag_of, seconds_of

Each = Callable[[PartitionLag], int | float | None]


def coordinator_families(coordinator: GroupCoordinator, result: LagReport) -> Iterator[str]:
    """The coordinator as a whole."""
    states = Counter(group.seen.state.value for group in result.groups)
    yield from family(
        "barnabas_coordinator_groups",
        "gauge",
        "Groups coordinated here, by state.",
        [({"state": state}, count) for state, count in sorted(states.items())],
    )
    yield from family(
        "barnabas_coordinator_partitions",
        "gauge",
        "Offsets partitions led here: owned, loading, or failed to load.",
        [
            ({"state": state.value}, count)
            for state, count in partitions_by_load_state(coordinator.registry).items()
        ],
    )
    if result.at_ms is not None:
        yield from single(
            "barnabas_group_survey_time_seconds",
            "gauge",
            "When groups were last looked at, seconds since 1970.",
            result.at_ms / 1000,
        )
    offsets = sum(len(group.seen.offsets) for group in result.groups) + result.beyond
    staged, loader = StagedCounts(), coordinator.loader
    for _ in count_staged(coordinator.registry, staged):
        yield ""  # so that the scrape may pause
    for name, kind, meaning, value in (
        ("offsets_cache_entries", "gauge", "Committed offsets kept here.", offsets),
        ("staged_offsets", "gauge", "Offsets inside of open transactions.", staged.offsets),
        ("staged_offsets_producers", "gauge", "Producers of these.", staged.producers),
        ("offsets_without_lag", "gauge", "Too many to find their lag.", result.beyond),
        ("offsets_expired_total", "counter", "Offsets expired.", coordinator.expiration.expired),
        ("audit_records_total", "counter", "Changes recorded.", coordinator.audit_trail.written),
        (
            "audit_records_lost_total",
            "counter",
            "Changes not recorded.",
            coordinator.audit_trail.lost,
        ),
        ("coordinator_loads_total", "counter", "Offsets partitions loaded.", loader.loads),
        ("coordinator_load_seconds_total", "counter", "Time of all loads.", loader.seconds),
        ("coordinator_load_seconds_max", "gauge", "Longest load.", loader.seconds_longest),
    ):
        yield from single(f"barnabas_{name}", kind, meaning, value)  # type: ignore[arg-type]


def group_families(result: LagReport, settings: MetricsSettings) -> Iterator[str]:
    """Each group: itself, its topics and, where asked for, its partitions."""
    result = replace(result, groups=told_groups(result.groups, settings))
    yield from _groups(result.groups)
    yield from _topics(result.groups)
    named = [group for group in result.groups if settings.names_partitions_of(group.seen.group_id)]
    if named:
        yield from _partitions("barnabas_group_partition", named, "group")
    if "kafka_exporter" in settings.compat:
        yield from _as_kafka_exporter(result)
    if "lag_exporter" in settings.compat:
        yield from _as_lag_exporter(result)


def told_groups(groups: Sequence[GroupLag], settings: MetricsSettings) -> Sequence[GroupLag]:
    """Those that have metrics of their own: ten thousand groups make a scrape of 9 MB."""
    if settings.groups_regex is not None:
        groups = [group for group in groups if settings.names(group.seen.group_id)]
    if settings.groups_worst is None or settings.groups_worst >= len(groups):
        return groups
    return heapq.nlargest(settings.groups_worst, groups, key=_badness)


def _badness(group: GroupLag) -> tuple[int, float, int]:
    return int(group.verdict), seconds_of(group) or 0.0, lag_of(group)


def _groups(groups: Sequence[GroupLag]) -> Iterator[str]:
    yield from family(
        "barnabas_group_state",
        "gauge",
        "1 for the state that a group is in.",
        (({"group": group.seen.group_id, "state": group.seen.state.value}, 1) for group in groups),
    )
    for name, kind, meaning, value in _OF_GROUPS:
        yield from family(
            f"barnabas_group_{name}",
            kind,
            meaning,
            (({"group": group.seen.group_id}, value(group)) for group in groups),
        )


def _lost(group: GroupLag) -> int:
    return sum(partition.lag.is_below_log_start for partition in group.partitions.values())


def _beyond(group: GroupLag) -> int:
    return sum(partition.lag.is_beyond_end for partition in group.partitions.values())


_OF_GROUPS: Any = (
    ("members", "gauge", "Members of a group.", lambda group: group.seen.members),
    (
        "commits_total",
        "counter",
        "Commits served since this node coordinates the group.",
        lambda group: group.seen.commits,
    ),
    (
        "status",
        "gauge",
        "Verdict: 0 nothing committed, 1 OK, 2 WARN, 3 ERR.",
        lambda group: int(group.verdict),
    ),
    ("partitions_below_log_start", "gauge", "Records were deleted unread.", _lost),
    ("partitions_beyond_end", "gauge", "The log ends before the offset.", _beyond),
)


def _topics(groups: Sequence[GroupLag]) -> Iterator[str]:
    yield from family(
        "barnabas_group_lag",
        "gauge",
        "Offsets still to be read, all partitions of a topic together.",
        _by_topic(groups, lambda partition: partition.lag.records, sum, "group"),
    )
    yield from family(
        "barnabas_group_lag_seconds",
        "gauge",
        "Age of the oldest record that is not read yet.",
        _by_topic(groups, lambda partition: partition.seconds, max, "group"),
    )


def _by_topic(
    groups: Sequence[GroupLag], value: Each, together: Callable[[list[Any]], Any], label: str
) -> Iterator[Sample]:
    for group in groups:
        found: dict[str, list[int | float]] = defaultdict(list)
        for place, partition in group.partitions.items():
            if (known := value(partition)) is not None:
                found[place.topic].append(known)
        for topic, values in found.items():
            yield {label: group.seen.group_id, "topic": topic}, together(values)


_OF_PARTITIONS: tuple[tuple[str, str, Each], ...] = (
    ("offset", "Committed offset.", lambda partition: partition.committed),
    ("lag", "Offsets still to be read.", lambda partition: partition.lag.records),
    (
        "lag_seconds",
        "Age of the first record that is not read yet.",
        lambda partition: partition.seconds,
    ),
    (
        "status",
        "Verdict: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND.",
        lambda partition: partition.verdict,
    ),
)


def _partitions(prefix: str, groups: Sequence[GroupLag], label: str) -> Iterator[str]:
    for name, meaning, value in _OF_PARTITIONS:
        samples = _each_partition(groups, value, label)
        yield from family(f"{prefix}_{name}", "gauge", meaning, samples)


def _each_partition(groups: Sequence[GroupLag], value: Each, label: str) -> Iterator[Sample]:
    for group in groups:
        for place, partition in group.partitions.items():
            if (known := value(partition)) is not None:
                yield {label: group.seen.group_id, **_labels(place)}, known + 0


def _labels(place: TopicPartition) -> Mapping[str, object]:
    return {"topic": place.topic, "partition": place.partition}


def _bounds(result: LagReport, which: int) -> Iterator[Sample]:
    return ((_labels(place), bounds[which]) for place, bounds in result.bounds.items())


def _as_kafka_exporter(result: LagReport) -> Iterator[str]:
    label, groups = "consumergroup", result.groups
    for name, value in (("current_offset", _committed), ("lag", _lag)):
        samples = _each_partition(groups, value, label)
        yield from family(f"kafka_consumergroup_{name}", "gauge", "As kafka_exporter.", samples)
    yield from family(
        "kafka_consumergroup_lag_sum",
        "gauge",
        "As kafka_exporter.",
        _by_topic(groups, _lag, sum, label),
    )
    yield from family(
        "kafka_consumergroup_members",
        "gauge",
        "As kafka_exporter.",
        (({label: group.seen.group_id}, group.seen.members) for group in groups),
    )
    for name, which in (("oldest", 0), ("current", 1)):
        full = f"kafka_topic_partition_{name}_offset"
        yield from family(full, "gauge", "As kafka_exporter.", _bounds(result, which))


def _as_lag_exporter(result: LagReport) -> Iterator[str]:
    meaning, groups = "As kafka-lag-exporter.", result.groups
    for name, value in (("offset", _committed), ("lag", _lag), ("lag_seconds", _seconds)):
        samples = _each_partition(groups, value, "group")
        yield from family(f"kafka_consumergroup_group_{name}", "gauge", meaning, samples)
    yield from family(
        "kafka_consumergroup_group_topic_sum_lag",
        "gauge",
        meaning,
        _by_topic(groups, _lag, sum, "group"),
    )
    for name, value, together in (
        ("sum_lag", _lag, sum),
        ("max_lag", _lag, max),
        ("max_lag_seconds", _seconds, max),
    ):
        samples = _by_group(groups, value, together)
        yield from family(f"kafka_consumergroup_group_{name}", "gauge", meaning, samples)
    for name, which in (("earliest", 0), ("latest", 1)):
        yield from family(
            f"kafka_partition_{name}_offset", "gauge", meaning, _bounds(result, which)
        )


def _by_group(
    groups: Sequence[GroupLag], value: Each, together: Callable[[list[Any]], Any]
) -> Iterator[Sample]:
    for group in groups:
        values = [known for one in group.partitions.values() if (known := value(one)) is not None]
        if values:
            yield {"group": group.seen.group_id}, together(values)


def _committed(partition: PartitionLag) -> int:
    return partition.committed


def _lag(partition: PartitionLag) -> int:
    return partition.lag.records


def _seconds(partition: PartitionLag) -> float | None:
    return partition.seconds
