"""The brokers that are up: what each leads and keeps, and the room on its disks.

Source: docs/spec/console.md §2.3 (brokers).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.catalogue import Directory
from barnabas.console.web.watch.known_topics import KnownTopics, node_counts
from barnabas.console.web.watch.reading import Reading

from .panels import node_row

COLUMNS: Final = (
    "id", "host", "port", "rack", "is_controller", "leaders", "replicas", "out_of_sync",
    "directories", "failed_directories", "total_bytes", "free_bytes",
)  # fmt: skip


async def page(view: View) -> Page:
    """One row for each node; its directories beneath."""
    catalogue = view.watch.catalogue
    cluster = await catalogue.cluster.read()
    topics = await catalogue.topics.read()
    nodes = cluster.value.nodes if cluster.value else []
    readings = await asyncio.gather(*(catalogue.directories.read(node.id) for node in nodes))
    counts = await node_counts(topics.value or KnownTopics())
    controller = cluster.value.controller if cluster.value else None
    rows = [
        {**node_row(node, controller, counts.get(node.id, {})), **_disk(reading)}
        for node, reading in zip(nodes, readings, strict=True)
    ]
    lost = sorted(counts.keys() - {node.id for node in nodes})
    model = {"cluster": cluster.state(), "brokers": rows, "lost": lost}
    return Page(title="Brokers", template="brokers.html", model=model, columns=COLUMNS, rows=rows)


def _disk(reading: Reading[list[Directory]]) -> dict[str, Any]:
    found = reading.value or []
    return {
        "disk": reading.state(),
        "directories": [_directory(directory) for directory in found],
        "failed_directories": sum(directory.error is not None for directory in found),
        "total_bytes": _sum(directory.total_bytes for directory in found),
        "free_bytes": _sum(directory.free_bytes for directory in found),
    }


def _directory(directory: Directory) -> dict[str, Any]:
    return {
        "path": directory.path,
        "error": directory.error,
        "total_bytes": directory.total_bytes,
        "free_bytes": directory.free_bytes,
    }


def _sum(values: Any) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
