"""Metrics of what alerts are made of: leases, beacons, ZooKeeper, standbys, disks.

Source: docs/spec/console.md §6.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.liveness.liveness import Liveness
from barnabas.broker.runtime.latency import BOUNDS_S
from barnabas.coordinator.group_coordinator import GroupCoordinator

from .exposition import family, histogram, single
from .node_sampler import NodeSampler
from .process_families import release


def node_info(node_id: int, roles: str) -> Iterator[str]:
    """Who this is."""
    labels = {"node": node_id, "roles": roles, "version": release()}
    meaning = "1, with who this is and its release."
    yield from family("barnabas_node_info", "gauge", meaning, [(labels, 1)])


def lease_families(liveness: Liveness, node_id: int) -> Iterator[str]:
    """How long the lease lasts, how often it was lost, and beacons of others that did not come."""
    if isinstance(liveness.lease, TimedLease):
        meaning = "Seconds until the lease ends unless it is extended."
        left = liveness.lease.remaining()
        yield from single("barnabas_lease_remaining_seconds", "gauge", meaning, left)
        meaning = "Leases that ended, by themselves or with the session."
        yield from single("barnabas_lease_losses_total", "counter", meaning, liveness.lease.losses)
    if liveness.beacons is not None:
        heard = liveness.beacons.failure_detector.heard()
        yield from family(
            "barnabas_beacon_missed_total",
            "counter",
            "Beacons of another node that did not come, since its start.",
            (({"peer": node}, missed) for node, (_, missed) in heard.items() if node != node_id),
        )


def zookeeper_families(sampler: NodeSampler) -> Iterator[str]:
    """Whether the session is up, and how soon ZooKeeper answers."""
    meaning = "1 while the session with ZooKeeper is connected."
    yield from single("barnabas_zookeeper_up", "gauge", meaning, int(sampler.is_connected))
    meaning = "What has to pass without an answer until the session is over."
    timeout_s = sampler.session[1] / 1000
    yield from single("barnabas_zookeeper_session_timeout_seconds", "gauge", meaning, timeout_s)
    answers = sampler.zookeeper_answers
    yield from histogram(
        "barnabas_zookeeper_seconds",
        "From a small read of ZooKeeper, every five seconds, to its answer.",
        BOUNDS_S,
        [({}, answers.buckets, answers.seconds)],
    )


def directory_families(sampler: NodeSampler) -> Iterator[str]:
    """What is free on each disk."""
    yield from family(
        "barnabas_log_directory_free_bytes",
        "gauge",
        "Bytes that may still be written to a log directory.",
        (({"directory": path}, free) for path, free in sorted(sampler.free_bytes.items())),
    )


def standby_families(groups: GroupCoordinator) -> Iterator[str]:
    """How far the standbys of offsets partitions are behind what is committed."""
    behind, worst = 0, 0
    states = groups.standbys.states()
    for _, state in states:
        _, high_watermark, _ = state.replica.bounds()
        records = max(0, high_watermark - max(0, state.position))
        behind += records
        worst = max(worst, records)
        yield ""  # so that the scrape may pause
    for name, meaning, value in (
        ("standbys", "Offsets partitions that are followed here with a warm state.", len(states)),
        ("standby_behind_records", "Committed records that they have not applied.", behind),
        ("standby_behind_records_max", "Of the one that has the most.", worst),
    ):
        yield from single(f"barnabas_{name}", "gauge", meaning, value)


def snapshot_families(sampler: NodeSampler, now_ms: int) -> Iterator[str]:
    """How old the snapshots of standbys are, and how many have none."""
    without, oldest_s = sampler.snapshots
    meaning = "Standbys of offsets partitions without a snapshot on disk."
    yield from single("barnabas_standbys_without_snapshot", "gauge", meaning, without)
    if oldest_s is not None:
        meaning = "Age of the newest snapshot of the standby that is worst off."
        age = max(0.0, now_ms / 1000 - oldest_s)
        yield from single("barnabas_standby_snapshot_age_seconds", "gauge", meaning, age)
