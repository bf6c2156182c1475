"""The first page: is all well, and what is worst.

Source: docs/spec/console.md §2.3 (overview).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.standings import Standing
from barnabas.coordinator.group_health import Verdict

from .panels import partition_counts

WORST: Final = 8
COLUMNS: Final = ("tile", "value")


async def page(view: View) -> Page:
    """Tiles for nodes, partitions and groups; the groups that stand worst."""
    watch = view.watch
    watch.survey.look()
    cluster = await watch.catalogue.cluster.read()
    topics = await watch.catalogue.topics.read()
    groups = await watch.catalogue.groups.read()
    counts = partition_counts((topics.value or {}).values())
    known = [
        watch.survey.standings[listing.group]
        for listing in groups.value or []
        if listing.group in watch.survey.standings
    ]
    verdicts = Counter(standing.verdict.name for standing in known if standing.verdict is not None)
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
            **(counts if topics.value is not None else dict.fromkeys(counts)),
        },
        "groups": {
            **groups.state(),
            "groups": None if groups.value is None else len(groups.value),
            "surveyed": len(known),
            "verdicts": {name: verdicts.get(name, 0) for name in ("ERR", "WARN", "OK")},
            "survey_problem": watch.survey.problem and watch.survey.problem.as_json(),
            "worst": [standing.row() for standing in worst_first(known)[:WORST]],
        },
    }
    return Page(
        title="Overview", template="overview.html", model=model, columns=COLUMNS,
        rows=_tiles(model),
    )  # fmt: skip


def worst_first(standings: list[Standing]) -> list[Standing]:
    """Those that are not well, by verdict and by how many seconds they are behind."""
    ill = [one for one in standings if one.verdict is not None and one.verdict > Verdict.OK]
    return sorted(ill, key=_badness, reverse=True)


def _badness(standing: Standing) -> tuple[int, float, int]:
    row = standing.summary
    return standing.verdict or 0, row["seconds"] or 0.0, row["lag"]


def _tiles(model: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    rows = [
        {"tile": f"{panel}.{name}", "value": value}
        for panel, values in model.items()
        for name, value in values.items()
        if isinstance(value, str | int) and name != "at_ms"
    ]
    verdicts = model["groups"]["verdicts"].items()
    return rows + [{"tile": f"groups.{name}", "value": value} for name, value in verdicts]
