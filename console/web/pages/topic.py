"""One topic: its partitions, the groups that read it, its settings.

Source: docs/spec/console.md §2.3 (topics).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from barnabas.client.admin.log_ends import LogEnds, log_ends
from barnabas.client.cluster import TopicPartition
from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.catalogue import Replica
from barnabas.console.web.watch.known_topics import KnownTopics
from barnabas.console.web.watch.reading import FAILURES, problem_of
from barnabas.console.web.watch.topic_rows import places_of
from barnabas.protocol.messages import metadata

from .not_found import not_found

COLUMNS: Final = (
    "partition", "leader", "replicas", "in_sync", "start", "end", "records", "bytes",
    "newest_ms", "open_transaction", "under_replicated",
)  # fmt: skip
UNKNOWN_ENDS: Final = LogEnds(None, None, None, None)
GROUPS_MOST: Final = 500


async def page(view: View) -> Page:
    """Everything about one topic; 404 for one that there is not."""
    name = view.query.required("name")
    watch = view.watch
    watch.survey.look()
    reading = await watch.catalogue.topics.read()
    topic = (reading.value or KnownTopics()).get(name)
    if topic is None:
        watch.catalogue.topics.expire()
        return not_found(view, "topic", name, reading.problem)
    nodes = sorted({node for part in topic.partitions for node in part.replica_nodes})
    (ends, problem), replicas, settings = await asyncio.gather(
        _ends(view, topic),
        watch.catalogue.replicas(places_of(topic), nodes),
        watch.catalogue.settings.read(name),
    )
    rows = [
        _row(name, part, ends, replicas)
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
    ]
    model = {
        "name": name,
        "is_internal": topic.is_internal,
        "reading": reading.state(),
        "problem": problem,
        "partitions": rows,
        "settings": {
            **settings.state(),
            "values": [
                {
                    "name": setting.name,
                    "value": None if setting.is_sensitive else setting.value,
                    "source": setting.source,
                    "is_sensitive": setting.is_sensitive,
                    "is_set": setting.is_set,
                }
                for setting in settings.value or []
            ],
        },
        "groups": _groups(view, name),
    }
    return Page(
        title=f"Topic {name}", template="topic.html", model=model, columns=COLUMNS, rows=rows
    )


async def _ends(
    view: View, topic: metadata.TopicResult
) -> tuple[dict[TopicPartition, LogEnds], dict[str, Any] | None]:
    try:
        return await log_ends(view.watch.admin.cluster, places_of(topic)), None
    except FAILURES as error:
        return {}, problem_of(error).as_json()


def _row(
    topic: str,
    part: metadata.Partition,
    ends: dict[TopicPartition, LogEnds],
    replicas: dict[TopicPartition, list[Replica]],
) -> dict[str, Any]:
    place = TopicPartition(topic, part.partition_index)
    log = ends.get(place, UNKNOWN_ENDS)
    copies = replicas.get(place, [])
    is_known = log.start is not None and log.end is not None
    return {
        "partition": part.partition_index,
        "leader": part.leader_id if part.leader_id >= 0 else None,
        "replicas": list(part.replica_nodes),
        "in_sync": list(part.isr_nodes),
        "under_replicated": len(part.isr_nodes) < len(part.replica_nodes),
        "start": log.start,
        "end": log.end,
        "records": (log.end or 0) - (log.start or 0) if is_known else None,
        "bytes": next((copy.bytes for copy in copies if copy.node == part.leader_id), None),
        "copies": [
            {"node": copy.node, "bytes": copy.bytes, "behind": copy.behind} for copy in copies
        ],
        "newest_ms": log.newest_ms,
        "open_transaction": log.stable is not None and log.end is not None
        and log.stable < log.end,
    }  # fmt: skip


def _groups(view: View, topic: str) -> list[dict[str, Any]]:
    """The groups that read it, as the sweep saw them last; the worst first."""
    survey = view.watch.survey
    found = [dict(survey.rows[name].summary) for name in survey.readers.get(topic, ())]
    found.sort(key=lambda row: (-(row["seconds"] or 0), row["name"]))
    return found[:GROUPS_MOST]
