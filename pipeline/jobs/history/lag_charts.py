"""The plots of lag-history: lag over time of each group, and its verdicts as a bar.

Source: docs/spec/pipeline.md §4, job 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from barnabas.coordinator.group_health import Verdict
from barnabas.pipeline.jobs.reports.report import Chart, Lines, Point, Timeline, TimelineSpan

from .lag_frames import WindowSpan

_POINTS_MAX: Final = 400
"""So many points a line; a longer history is thinned, keeping the largest of each stretch."""


def charts(groups: DataFrame, names: Sequence[str], span: WindowSpan) -> list[Chart]:
    """Plots of the groups ``names``, in their order. ``groups``: what by_group() gives."""
    stretch = max(1, -(-span.windows // _POINTS_MAX)) * span.window_ms
    found = _stretches(groups, names, stretch)
    lag = {name: [Point(at, row["lag"]) for at, row in found[name]] for name in names}
    seconds = {name: [Point(at, _seconds(row)) for at, row in found[name]] for name in names}
    verdicts = {name: _spans(found[name], stretch) for name in names}
    return [
        Timeline("Verdicts, of the worst partition", verdicts),
        Lines("Lag over time", "records", lag),
        Lines("Age of the oldest unread record", "s", seconds),
    ]


def _stretches(
    groups: DataFrame, names: Sequence[str], stretch_ms: int
) -> dict[str, list[tuple[int, Any]]]:
    start = F.floor(F.col("window_start") / F.lit(stretch_ms)).cast("bigint") * stretch_ms
    rows = (
        groups.where(F.col("group").isin(list(names)))
        .groupBy("group", start.alias("start"))
        .agg(F.max("lag").alias("lag"), F.max("lag_ms").alias("lag_ms"),
             F.max("worst").alias("worst"))
        .orderBy("group", "start")
    )  # fmt: skip
    found: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for row in rows.collect():
        found[row.group].append((row.start, row.asDict()))
    return found


def _seconds(row: Any) -> float | None:
    return None if row["lag_ms"] is None else row["lag_ms"] / 1000


def _spans(rows: Sequence[tuple[int, Any]], stretch_ms: int) -> list[TimelineSpan]:
    """Stretches of the same verdict put together."""
    spans: list[TimelineSpan] = []
    for at, row in rows:
        label = Verdict(row["worst"]).name
        if spans and spans[-1].label == label and spans[-1].end_ms == at:
            spans[-1] = spans[-1]._replace(end_ms=at + stretch_ms)
        else:
            spans.append(TimelineSpan(at, at + stretch_ms, label))
    return spans
