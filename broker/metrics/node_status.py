"""What a node says of itself as JSON: the answer of /status, version 1.

Made part by part, with the loop given to others in between. Times are ms since 1970, durations
seconds. Source: docs/spec/console.md §2.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.liveness.lease import TimedLease
from barnabas.broker.runtime.latency import BOUNDS_S, Latency
from barnabas.coordinator.group_registry import GroupTerm
from barnabas.coordinator.terms import LoadState

from .node_sampler import NodeSampler
from .process_families import release

if TYPE_CHECKING:
    from .node_metrics import MetricsSources

VERSION: Final = 1
"""Grows when something that was told changes its meaning or goes; more may be told any time."""
_P99: Final = 0.99


async def node_status(
    node: MetricsSources, sampler: NodeSampler, loop_lag: Latency, started_ms: int
) -> dict[str, Any]:
    """Everything; the parts have the names of docs/operations.md."""
    status: dict[str, Any] = {
        "version": VERSION,
        "node": _identity(node, started_ms),
        "zookeeper": _zookeeper(sampler),
        "lease": _lease(node),
        "peers": _peers(node),
        "controller": _controller(node, sampler),
        "directories": _directories(node, sampler),
        "loop": {
            "delay_p99_seconds": quantile(loop_lag, _P99),
            "delay_max_seconds": loop_lag.worst,
        },
        "audit": _audit(node),
    }
    status["offsets_partitions"] = [part async for part in _led(node)]
    status["standbys"] = [part async for part in _standbys(node)]
    return status


def quantile(latency: Latency, share: float) -> float | None:
    """The bound of the bucket that ``share`` of the observations lie below; None without any."""
    total = sum(latency.buckets)
    if not total:
        return None
    reached = 0
    for bound, count in zip(BOUNDS_S, latency.buckets, strict=False):
        reached += count
        if reached >= share * total:
            return min(bound, latency.worst)
    return latency.worst


def _identity(node: MetricsSources, started_ms: int) -> dict[str, Any]:
    return {
        "id": node.node_id,
        "cluster_id": node.cluster_id,
        "roles": list(node.config.node.node_roles),
        "rack": node.config.node.broker_rack,
        "version": release(),
        "started_ms": started_ms,
        "now_ms": node.now_ms(),
    }


def _zookeeper(sampler: NodeSampler) -> dict[str, Any]:
    state, timeout_ms = sampler.session
    return {
        "state": state,
        "session_timeout_ms": timeout_ms,
        "last_answer_ms": sampler.zookeeper_last_ms,
        "last_answer_seconds": sampler.zookeeper_last_s,
    }


def _lease(node: MetricsSources) -> dict[str, Any]:
    lease = node.liveness.lease
    told: dict[str, Any] = {"kind": node.liveness.lease_kind, "holds": lease.holds()}
    if isinstance(lease, TimedLease):
        told |= {
            "remaining_seconds": lease.remaining(),
            "least_remaining_seconds": lease.least_remaining(),
            "losses": lease.losses,
            "settled_epoch": lease.settled_epoch,
        }
    return told


def _peers(node: MetricsSources) -> list[dict[str, Any]]:
    beacons = node.liveness.beacons
    if beacons is None:
        return []
    return [
        {"node": peer, "heard_seconds_ago": ago, "missed": missed}
        for peer, (ago, missed) in beacons.failure_detector.heard().items()
        if peer != node.node_id
    ]


def _controller(node: MetricsSources, sampler: NodeSampler) -> dict[str, Any] | None:
    """None on all nodes but one."""
    context = node.controller.context
    if context is None:
        return None
    return {
        "epoch": node.controller.epoch,
        "since_ms": sampler.controller_since_ms,
        "live_nodes": sorted(context.nodes),
        "topics": len(context.assignments),
        "moves": len(context.reassignments),
        "authority_losses": node.controller.losses,
    }


def _directories(node: MetricsSources, sampler: NodeSampler) -> list[dict[str, Any]]:
    sizes: dict[Any, int] = {}
    for stored_log in node.logs.logs():
        where = stored_log.directory.parent
        sizes[where] = sizes.get(where, 0) + stored_log.size
    return [
        {
            "path": str(directory.path),
            "state": "online" if directory.is_online else "offline",
            "bytes": sizes.get(directory.path, 0),
            "free_bytes": sampler.free_bytes.get(directory.path),
        }
        for directory in node.logs.directories
    ]


def _audit(node: MetricsSources) -> dict[str, Any]:
    trail = node.groups.audit_trail
    return {"written": trail.written, "lost": trail.lost, "waiting": trail.waiting}


async def _led(node: MetricsSources) -> AsyncIterator[dict[str, Any]]:
    now, now_ms = asyncio.get_running_loop().time(), node.now_ms()
    for term in sorted(node.groups.registry.terms(), key=lambda term: term.partition):
        yield _of_term(term, now_ms - int((now - term.began) * 1000) if term.began else None)
        await asyncio.sleep(0)


def _of_term(term: GroupTerm, since_ms: int | None) -> dict[str, Any]:
    return {
        "partition": term.partition,
        "standing": term.load_state.value,
        "epoch": term.leader_epoch,
        "since_ms": since_ms,
        "groups": len(term.groups),
        "offsets": sum(group.offsets.kept for group in term.groups.values()),
        "load_seconds": term.load_seconds,
        "loaded_from": "standby" if term.was_warm else "log",
        "attempts": term.attempts + (term.load_state is LoadState.FAILED),
    }


async def _standbys(node: MetricsSources) -> AsyncIterator[dict[str, Any]]:
    for partition, state in node.groups.standbys.states():
        _, high_watermark, _ = state.replica.bounds()
        yield {
            "partition": partition,
            "applied": max(0, state.position),
            "high_watermark": high_watermark,
            "behind": max(0, high_watermark - max(0, state.position)),
        }
        await asyncio.sleep(0)
