"""``barnabas nodes list``: what each node leads, copies and coordinates, and how it stands.

Source: docs/spec/console.md §2.3 (brokers, leases) and §7.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.errors import KafkaError
from barnabas.console.command_line.cluster_options import administer
from barnabas.console.command_line.output import print_json, print_table, shown
from barnabas.console.coordinators.status_token import add_token_option, status_token
from barnabas.console.partitions.placements import Placements, placements, rank
from barnabas.console.partitions.waiting import in_bytes
from barnabas.console.web.watch.node_status import part, text
from barnabas.protocol.messages import describe_log_dirs

from .facts import ClusterNodes, NodeInfo, cluster_nodes

COLUMNS: Final = (
    "NODE", "ADDRESS", "RACK", "LEADS", "COPIES", "OUT-OF-SYNC", "GROUPS", "TRANSACTIONS",
    "BYTES", "FREE", "LEASE", "VERSION", "NOTE",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Disk:
    """What the directories of a node hold, and what is free; None where it does not tell."""

    bytes: int | None
    free: int | None
    failed: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which nodes."""
    parser.add_argument("nodes", nargs="*", type=int, metavar="NODE", help="only these")
    add_token_option(parser)


def run(chosen: argparse.Namespace) -> int:
    """Print them; a node that is down and should have copies is shown, too."""
    token = status_token(chosen)

    async def work(admin: Admin) -> tuple[ClusterNodes, Placements, Mapping[int, _Disk]]:
        found = await cluster_nodes(admin, token)
        disks = await asyncio.gather(*(_disk(admin, node) for node in found.up))
        return found, await placements(admin), dict(zip(found.up, disks, strict=True))

    found, known, disks = administer(chosen, work)
    up = {node.id: node for node in found.nodes}
    missing = {node for one in known.values() for node in one.replicas} - up.keys()
    every = [
        _described(node, up.get(node), known, disks.get(node), found.controller)
        for node in sorted({*up, *missing})
        if not chosen.nodes or node in chosen.nodes
    ]
    if chosen.json:
        print_json(every)
    else:
        print_table(COLUMNS, [_row(one) for one in every])
    return 0


async def _disk(admin: Admin, node: int) -> _Disk:
    request = describe_log_dirs.DescribeLogDirsRequest(topics=None)
    try:
        answer = await admin.cluster.ask(node, request)
    except KafkaError:
        return _Disk(None, None)
    sizes = [
        found.partition_size
        for directory in answer.results
        for topic in directory.topics
        for found in topic.partitions
    ]
    free = [one.usable_bytes for one in answer.results if one.usable_bytes >= 0]
    failed = sum(bool(one.error_code) for one in answer.results)
    is_told = bool(answer.results) and not answer.error_code
    return _Disk(sum(sizes) if is_told else None, sum(free) if free else None, failed)


def _described(
    node: int, info: NodeInfo | None, known: Placements, disk: _Disk | None, controller: int | None
) -> dict[str, Any]:
    every = list(known.values())
    led = [one for one in every if one.leader == node]
    copies = [one for one in every if node in one.replicas]
    return {
        "node": node,
        "is_up": info is not None,
        "address": None if info is None else f"{info.host}:{info.port}",
        "rack": None if info is None else info.rack,
        "is_controller": node == controller,
        "leads": len(led),
        "first_for": sum(one.preferred == node for one in copies),
        "copies": len(copies),
        "out_of_sync": sum(node not in one.in_sync for one in copies),
        "group_partitions": sum(rank(one.place.topic) == 2 for one in led),
        "transaction_partitions": sum(rank(one.place.topic) == 1 for one in led),
        "bytes": None if disk is None else disk.bytes,
        "free_bytes": None if disk is None else disk.free,
        "failed_directories": 0 if disk is None else disk.failed,
        **_told(info),
    }


def _told(info: NodeInfo | None) -> dict[str, Any]:
    """What only nodes of Barnabas with a metrics port say."""
    status = None if info is None else info.status
    holds = part(status, "lease", "holds")
    roles = part(status, "node", "roles")
    return {
        "is_told": status is not None,
        "roles": roles if isinstance(roles, list) else None,
        "version": text(part(status, "node", "version")),
        "holds_lease": holds if isinstance(holds, bool) else None,
    }


def _row(one: Mapping[str, Any]) -> Sequence[object]:
    lease = {None: "-", True: "held", False: "LOST"}[one["holds_lease"]]
    return (
        one["node"], shown(one["address"]), shown(one["rack"]), one["leads"], one["copies"],
        one["out_of_sync"], one["group_partitions"], one["transaction_partitions"],
        _size(one["bytes"]), _size(one["free_bytes"]), lease, shown(one["version"]),
        ",".join(_notes(one)),
    )  # fmt: skip


def _size(count: int | None) -> str:
    return "-" if count is None else in_bytes(count)


def _notes(one: Mapping[str, Any]) -> list[str]:
    roles = one["roles"]
    return [
        *(["controller"] if one["is_controller"] else []),
        *([] if one["is_up"] else ["down"]),
        *([f"{one['failed_directories']} directories failed"] if one["failed_directories"] else []),
        *([f"{roles[0]} only"] if roles is not None and len(roles) == 1 else []),
    ]
