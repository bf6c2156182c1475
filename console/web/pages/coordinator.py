"""Where groups are kept: every offsets partition, its leader, its standbys, its groups.

Source: docs/spec/console.md §2.3 (coordinator).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from barnabas.client.admin.commit_history import OFFSETS_TOPIC
from barnabas.console.web.page import Page, View
from barnabas.protocol.hashing import group_partition

from .placement import offsets_partition, placement_of

COLUMNS: Final = ("partition", "leader", "epoch", "standbys", "in_sync", "replicas", "groups")


async def page(view: View) -> Page:
    """The partitions of the offsets topic; with ``group`` where that one belongs."""
    catalogue = view.watch.catalogue
    topics = await catalogue.topics.read()
    groups = await catalogue.groups.read()
    known = topics.value or {}
    topic = known.get(OFFSETS_TOPIC)
    parts = sorted(topic.partitions, key=lambda part: part.partition_index) if topic else []
    names = [listing.group for listing in groups.value or []]
    counts = Counter(group_partition(name, len(parts)) for name in names) if parts else Counter()
    rows = [{**offsets_partition(part), "groups": counts[part.partition_index]} for part in parts]
    asked = view.query.text("group")
    leaders = Counter(row["leader"] for row in rows if row["leader"] is not None)
    model = {
        "reading": topics.state(),
        "groups_reading": groups.state(),
        "partitions": rows,
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
