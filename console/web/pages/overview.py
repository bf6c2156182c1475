"""The first page: is all well, and what is worst.

Source: docs/spec/console.md §2.3 (overview).
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.known_groups import KnownGroups
from barnabas.console.web.watch.known_topics import KnownTopics, partition_counts
from barnabas.protocol.events_topic import EVENTS_TOPIC

COLUMNS: Final = ("tile", "value")


async def page(view: View) -> Page:
    """Tiles for nodes, partitions and groups; the groups that stand worst."""
    watch = view.watch
    watch.survey.look()
    cluster = await watch.catalogue.cluster.read()
    topics = await watch.catalogue.topics.read()
    groups = await watch.catalogue.groups.read()
    counts = await partition_counts(topics.value or KnownTopics())
    known = groups.value or KnownGroups()
    verdicts = watch.group_table.verdicts(known)
    model = {
        "cluster": {
            **cluster.state(),
            "id": cluster.value and cluster.value.id,
            "controller": cluster.value and cluster.value.controller,
            "nodes": len(cluster.value.nodes) if cluster.value else None,
        },
        "topics": {
            **topics.state(),
            "topics": None if topics.value is None else len(topics.value),
            "keeps_events": EVENTS_TOPIC in (topics.value or ()),
            **(counts if topics.value is not None else dict.fromkeys(counts)),
        },
        "groups": {
            **groups.state(),
            "groups": None if groups.value is None else len(groups.value),
            "surveyed": watch.group_table.surveyed(known),
            "verdicts": {name: verdicts.get(name, 0) for name in ("ERR", "WARN", "OK")},
            "survey_problem": watch.survey.problem and watch.survey.problem.as_json(),
            "worst": [dict(row.summary) for row in watch.group_table.worst(known)],
        },
    }
    return Page(
        title="Overview", template="overview.html", model=model, columns=COLUMNS,
        rows=_tiles(model),
    )  # fmt: skip


def _tiles(model: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [
        {"tile": f"{panel}.{name}", "value": value}
        for panel, values in model.items()
        for name, value in values.items()
        if isinstance(value, str | int) and name != "at_ms"
    ]
    verdicts = model["groups"]["verdicts"].items()
    return rows + [{"tile": f"groups.{name}", "value": value} for name, value in verdicts]
