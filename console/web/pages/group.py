"""One group: where it stands in each partition, its members, its coordinator, its history.

Source: docs/spec/console.md §2.3 (groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from barnabas.client.admin.descriptions import MemberDescription
from barnabas.client.cluster import TopicPartition
from barnabas.console.groups.partition_lags import PartitionLag
from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.cluster_watch import ClusterWatch
from barnabas.console.web.watch.known_topics import KnownTopics
from barnabas.console.web.watch.standings import NOTES, REASONS, Standing
from barnabas.coordinator.group_health import Verdict

from .not_found import not_found
from .placement import placement_of

COLUMNS: Final = (
    "topic", "partition", "committed", "start", "end", "lag", "seconds", "verdict", "note",
    "member", "client_id", "host", "last_commit_ms",
)  # fmt: skip


async def page(view: View) -> Page:
    """Everything about one group; 404 for one that there is not."""
    name = view.query.required("name")
    reading = await view.watch.groups.read(name)
    standing = reading.value
    if standing is None or not standing.group.exists:
        return not_found(view, "group", name, reading.problem)
    rows = [_row(standing, row) for row in standing.partitions if row.progress.topic is not None]
    model = {
        "name": name,
        "reading": reading.state(),
        "summary": standing.row(),
        "assignor": standing.group.assignor,
        "protocol_type": standing.group.protocol_type,
        "coordinator": {
            "id": standing.group.coordinator.id,
            "host": standing.group.coordinator.host,
            "port": standing.group.coordinator.port,
            "placement": await _placement(view.watch, name),
        },
        "partitions": rows,
        "members": [_member(member) for member in standing.group.members],
    }
    return Page(
        title=f"Group {name}", template="group.html", model=model, columns=COLUMNS, rows=rows
    )


def _row(standing: Standing, row: PartitionLag) -> dict[str, Any]:
    progress = row.progress
    assert progress.topic is not None
    assert progress.partition is not None
    place = TopicPartition(progress.topic, progress.partition)
    is_judged = standing.has_history and row.verdict is not Verdict.NOTFOUND
    return {
        "topic": progress.topic,
        "partition": progress.partition,
        "committed": progress.current_offset,
        "start": progress.log_start_offset,
        "end": progress.log_end_offset,
        "lag": row.lag and row.lag.records,
        "seconds": row.seconds,
        "verdict": row.verdict.name if is_judged else None,
        "note": NOTES[row.note] if row.note else REASONS.get(row.verdict, ""),
        "member": progress.member and progress.member.member_id,
        "client_id": progress.member and progress.member.client_id,
        "host": progress.member and progress.member.host,
        "last_commit_ms": standing.last_commit_ms.get(place),
    }


def _member(member: MemberDescription) -> dict[str, Any]:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "partitions": _assigned(member.assignment),
    }


def _assigned(places: Sequence[TopicPartition]) -> list[str]:
    return [f"{place.topic}-{place.partition}" for place in places]


async def _placement(watch: ClusterWatch, name: str) -> dict[str, Any] | None:
    topics = (await watch.catalogue.topics.read()).value or KnownTopics()
    return placement_of(topics, name)
