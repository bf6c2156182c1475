"""Where groups are kept: every offsets partition, its leader, its standbys, its groups.

Source: docs/spec/console.md §2.3 (coordinator).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final

from barnabas.client.admin.commit_history import OFFSETS_TOPIC
from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.known_topics import KnownTopics
from barnabas.console.web.watch.node_status import number, text, whole
from barnabas.console.web.watch.node_status import rows as status_rows
from barnabas.protocol.hashing import group_partition

from .placement import offsets_partition, placement_of

COLUMNS: Final = (
    "partition",
    "leader",
    "epoch",
    "standing",
    "load_seconds",
    "standbys",
    "in_sync",
    "replicas",
    "groups",
)


async def page(view: View) -> Page:
    """The partitions of the offsets topic; with ``group`` where that one belongs."""
    catalogue = view.watch.catalogue
    topics = await catalogue.topics.read()
    await catalogue.cluster.read()
    groups = await catalogue.groups.read()
    known = topics.value or KnownTopics()
    topic = known.get(OFFSETS_TOPIC)
    parts = sorted(topic.partitions, key=lambda part: part.partition_index) if topic else []
    names = groups.value.names if groups.value else ()
    counts = Counter(group_partition(name, len(parts)) for name in names) if parts else Counter()
    rows = [{**offsets_partition(part), "groups": counts[part.partition_index]} for part in parts]
    await _add_statuses(view, rows)
    asked = view.query.text("group")
    leaders = Counter(row["leader"] for row in rows if row["leader"] is not None)
    model = {
        "reading": topics.state(),
        "groups_reading": groups.state(),
        "partitions": rows,
        "is_told": any(row["standing"] for row in rows),
        "asked": {"group": asked, "placement": placement_of(known, asked)} if asked else None,
        "nodes": [
            {
                "node": node,
                "partitions": count,
                "groups": sum(row["groups"] for row in rows if row["leader"] == node),
            }
            for node, count in sorted(leaders.items())
        ],
    }
    table = [{**row, "standbys": [standby["node"] for standby in row["standbys"]]} for row in rows]
    return Page(
        title="Coordinators", template="coordinator.html", model=model, columns=COLUMNS,
        rows=table,
    )  # fmt: skip


async def _add_statuses(view: View, rows: list[dict[str, Any]]) -> None:
    """What nodes say of the offsets partitions that they lead and stand by for; None elsewhere."""
    nodes = {row["leader"] for row in rows if row["leader"] is not None}
    nodes |= {standby["node"] for row in rows for standby in row["standbys"]}
    up = {node.id for node in getattr(view.watch.catalogue.cluster.known().value, "nodes", ())}
    asked = sorted(nodes & up) if up else sorted(nodes)
    readings = await asyncio.gather(*(view.watch.statuses.read(node) for node in asked))
    statuses = {node: reading.value for node, reading in zip(asked, readings, strict=True)}
    led = {
        (node, part.get("partition")): part
        for node, status in statuses.items()
        for part in status_rows(status, "offsets_partitions")
    }
    following = {
        (node, part.get("partition")): part
        for node, status in statuses.items()
        for part in status_rows(status, "standbys")
    }
    for row in rows:
        found = led.get((row["leader"], row["partition"]))
        row["standing"] = text(found.get("standing")) if found else None
        row["load_seconds"] = number(found.get("load_seconds")) if found else None
        for standby in row["standbys"]:
            behind = following.get((standby["node"], row["partition"]))
            standby["behind"] = whole(behind.get("behind")) if behind else None
