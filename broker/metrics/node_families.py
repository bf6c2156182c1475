"""Metrics of a node: its process, requests, logs, replicas and, on one, the whole cluster.

Source: docs/spec/users.md §4; the gauges of Kafka's that operators watch, by names like ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.replication.isr import IsrManager
from barnabas.broker.replication.partition import Partition
from barnabas.broker.runtime.latency import BOUNDS_S as DUTY_BOUNDS_S
from barnabas.broker.runtime.latency import Latency
from barnabas.broker.storage.log_manager import LogManager

from .exposition import family, histogram, single
from .process_families import rows
from .request_meter import BOUNDS_S, RequestMeter

_NO_LEADER: Final = -1


def duty_families(duties: Mapping[str, Latency]) -> Iterator[str]:
    """What the node does for itself: late where clients' load keeps it from that."""
    yield from histogram(
        "barnabas_duty_seconds",
        "How late the loop calls, and round trips of what the node does for itself.",
        DUTY_BOUNDS_S,
        (({"duty": name}, latency.buckets, latency.seconds) for name, latency in duties.items()),
    )
    yield from family(
        "barnabas_duty_seconds_max",
        "gauge",
        "The worst of these since the start.",
        (({"duty": name}, latency.worst) for name, latency in duties.items()),
    )


def collector_families(longest_pause_s: float) -> Iterator[str]:
    """Python's collector of cycles, for which the whole node stands still."""
    yield from rows(
        "barnabas",
        (
            "gc_pause_seconds_max",
            "gauge",
            "The longest that Python looked for cycles at once, since the start.",
            longest_pause_s,
        ),
    )


def connection_families(throttled: Mapping[str, int], closed: Mapping[str, int]) -> Iterator[str]:
    """Connections that are not read for a while, and those that we closed; no user is named."""
    yield from family(
        "barnabas_throttled_connections",
        "gauge",
        "Connections that are not read for a while: over a quota, or above a rate.",
        (({"kind": kind}, count) for kind, count in sorted(throttled.items())),
    )
    yield from family(
        "barnabas_connections_refused_total",
        "counter",
        "Connections that the node closed: too many, idle, slow, or not authenticated in time.",
        (({"reason": reason}, count) for reason, count in sorted(closed.items())),
    )


def request_families(
    meters: Mapping[str, RequestMeter], connections: Mapping[str, int]
) -> Iterator[str]:
    """Requests by API, connections by listener."""
    meters = dict(sorted(meters.items()))
    yield from histogram(
        "barnabas_request_seconds",
        "From the call of a request's handler until its answer was there.",
        BOUNDS_S,
        (({"api": name}, meter.buckets, meter.seconds) for name, meter in meters.items()),
    )
    yield from family(
        "barnabas_request_bytes_total",
        "counter",
        "Bytes of requests.",
        (({"api": name}, meter.bytes_in) for name, meter in meters.items()),
    )
    yield from family(
        "barnabas_response_bytes_total",
        "counter",
        "Bytes of answers.",
        (({"api": name}, meter.bytes_out) for name, meter in meters.items()),
    )
    yield from family(
        "barnabas_connections",
        "gauge",
        "Open connections, by listener.",
        [({"listener": name}, count) for name, count in connections.items()],
    )


def replica_families(hosted: Iterable[Partition], sets: IsrManager) -> Iterator[str]:
    """The replicas on this node; the sums of a cluster are the sums of its nodes."""
    partitions = list(hosted)
    led = [partition for partition in partitions if partition.is_leader]
    ends: Counter[str] = Counter()
    lag = 0
    for partition in led:
        ends[partition.topic] += partition.log.end_offset
        lag = max(lag, partition.followers.lag_max(partition.log.end_offset))
        yield ""  # so that the scrape may pause
    under = sum(len(partition.isr) < len(partition.replicas) for partition in led)
    short = sum(not partition.has_enough_replicas for partition in led)
    offline = sum(partition.log.is_offline for partition in partitions)
    yield from rows(
        "barnabas",
        ("partitions", "gauge", "Replicas hosted here.", len(partitions)),
        ("leader_partitions", "gauge", "Of these, led here.", len(led)),
        ("under_replicated_partitions", "gauge", "Led here, a replica not in sync.", under),
        ("under_min_isr_partitions", "gauge", "Led here, too few in sync.", short),
        ("offline_replicas", "gauge", "Hosted here, on a disk that failed.", offline),
        ("replica_lag_max_records", "gauge", "Of the follower that lacks most of a log.", lag),
        ("isr_shrinks_total", "counter", "In-sync sets that lost a replica.", sets.shrinks),
        ("isr_expands_total", "counter", "In-sync sets that won a replica.", sets.expands),
    )
    for name, meaning in (
        ("total", "Ends of a topic's logs led here, added up: they move with leaders."),
        ("sum", "Former name of barnabas_topic_end_offset_total."),
    ):
        yield from family(
            f"barnabas_topic_end_offset_{name}",
            "counter",
            meaning,
            (({"topic": topic}, count) for topic, count in sorted(ends.items())),
        )


def log_families(logs: LogManager) -> Iterator[str]:
    """Logs and their directories."""
    size = 0
    for stored_log in logs.logs():
        size += stored_log.size
        yield ""  # so that the scrape may pause
    offline = sum(not directory.is_online for directory in logs.directories)
    yield from rows(
        "barnabas",
        ("log_bytes", "gauge", "Bytes of all logs here, without indexes.", size),
        ("log_directories_offline", "gauge", "Log directories that failed.", offline),
    )


def controller_families(context: ControllerContext | None, epoch: int) -> Iterator[str]:
    """1 on one node of a cluster, with what only that one knows."""
    is_active = int(context is not None)
    yield from single("barnabas_active_controller", "gauge", "1 on the controller.", is_active)
    if context is None:
        return
    leaderless = partitions = 0
    for partition in list(context.all_partitions()):
        state = context.leaders.get(partition)
        partitions += 1
        leaderless += (
            state is None or state.leader == _NO_LEADER or state.leader not in context.nodes
        )
        yield ""  # so that the scrape may pause
    yield from rows(
        "barnabas_controller",
        ("epoch", "gauge", "The controller's epoch.", epoch),
        ("live_nodes", "gauge", "Nodes that are registered.", len(context.nodes)),
        ("topics", "gauge", "Topics of the cluster.", len(context.assignments)),
        ("partitions", "gauge", "Partitions of the cluster.", partitions),
        ("offline_partitions", "gauge", "Partitions without a leader.", leaderless),
        ("reassignments", "gauge", "Partitions on the move.", len(context.reassignments)),
    )
