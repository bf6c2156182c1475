"""Leases: which node may answer, for how long yet, and how close it came to losing that.

Told by Barnabas' own nodes. Source: docs/spec/console.md §2.3 (leases); docs/beacons.md.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.node_status import Status, number, part, rows, text, whole
from barnabas.console.web.watch.reading import Reading

COLUMNS: Final = (
    "node", "is_told", "version", "started_ms", "kind", "holds", "remaining_seconds",
    "least_remaining_seconds", "losses", "settled_epoch", "missed", "zookeeper",
    "zookeeper_seconds", "loop_seconds",
)  # fmt: skip


async def page(view: View) -> Page:
    """One row for each node; a node that tells nothing says so."""
    cluster = await view.watch.catalogue.cluster.read()
    nodes = [node.id for node in cluster.value.nodes] if cluster.value else []
    readings = await asyncio.gather(*(view.watch.statuses.read(node) for node in nodes))
    found = [_row(node, reading) for node, reading in zip(nodes, readings, strict=True)]
    model = {
        "cluster": cluster.state(),
        "nodes": found,
        "is_told": any(row["is_told"] for row in found),
    }
    return Page(title="Leases", template="leases.html", model=model, columns=COLUMNS, rows=found)


def _row(node: int, reading: Reading[Status | None]) -> dict[str, Any]:
    status = reading.value
    missed = [whole(peer.get("missed")) or 0 for peer in rows(status, "peers")]
    holds = part(status, "lease", "holds")
    return {
        "node": node,
        "problem": reading.state()["problem"],
        "is_told": status is not None,
        "version": text(part(status, "node", "version")),
        "started_ms": whole(part(status, "node", "started_ms")),
        "kind": text(part(status, "lease", "kind")),
        "holds": holds if isinstance(holds, bool) else None,
        "remaining_seconds": number(part(status, "lease", "remaining_seconds")),
        "least_remaining_seconds": number(part(status, "lease", "least_remaining_seconds")),
        "losses": whole(part(status, "lease", "losses")),
        "settled_epoch": whole(part(status, "lease", "settled_epoch")),
        "missed": max(missed, default=None),
        "zookeeper": text(part(status, "zookeeper", "state")),
        "zookeeper_seconds": number(part(status, "zookeeper", "last_answer_seconds")),
        "loop_seconds": number(part(status, "loop", "delay_p99_seconds")),
        "audit_lost": whole(part(status, "audit", "lost")),
    }
