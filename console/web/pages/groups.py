"""The list of groups: the sweep's verdicts, and fresh lag of the rows that are shown.

Source: docs/spec/console.md §2.3 (groups).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.console.web.glob_pattern import search_matcher
from barnabas.console.web.page import Page, View
from barnabas.console.web.rows import cut_ordered
from barnabas.console.web.watch.cluster_watch import ClusterWatch
from barnabas.console.web.watch.known_groups import KnownGroups
from barnabas.console.web.watch.standings import GroupRow

COLUMNS: Final = (
    "name", "state", "members", "topics", "lag", "seconds", "verdict", "reason", "coordinator",
    "last_commit_ms",
)  # fmt: skip
DAY_MS: Final = 86_400_000
FRESH_MS: Final = 5_000
"""Rows that the sweep saw longer ago are asked for again."""
DEFAULT_SORT: Final = "-seconds"


async def page(view: View) -> Page:
    """All groups that the filters let pass, the one that is furthest behind first."""
    watch = view.watch
    watch.survey.look()
    reading = await watch.catalogue.groups.read()
    groups = reading.value or KnownGroups()
    passes = _filter(view, groups)
    pattern = view.query.text("q")

    def order_of(column: str, is_downward: bool) -> Sequence[str]:
        names = watch.group_table.order(groups, column, is_downward)
        if pattern:
            names = list(filter(search_matcher(pattern), names))
        return names if passes is None else list(filter(passes, names))

    values = watch.group_table.values(groups)
    part = cut_ordered(view.query, watch.orderings, order_of, values, DEFAULT_SORT)
    rows = await _rows(view, groups, [name for name in part.names if name in groups])
    model = {
        "reading": reading.state(),
        "list": part.state(),
        "all": len(groups),
        "surveyed": watch.group_table.surveyed(groups),
        "survey_problem": watch.survey.problem and watch.survey.problem.as_json(),
        "groups": rows,
    }
    return Page(
        title="Groups", template="groups.html", model=model, columns=COLUMNS, rows=rows,
        next_url=part.next_url,
    )  # fmt: skip


def _filter(view: View, groups: KnownGroups) -> Callable[[str], bool] | None:
    """What the query lets pass, names apart; None when it lets everything pass.

    The query is read once, and not for each of 10,000 groups.
    """
    query, rows = view.query, view.watch.survey.rows
    states, verdicts = query.words("state"), query.words("verdict")
    idle_ms = query.number("idle", 0, 0, 36_500) * DAY_MS
    if not (states or verdicts or idle_ms):
        return None

    def passes(name: str) -> bool:
        row = rows.get(name)
        if states and groups[name].state not in states:
            return False
        if verdicts and (row is None or _verdict(row) not in verdicts):
            return False
        if not idle_ms:
            return True
        last = row.summary["last_commit_ms"] if row is not None else None
        return last is not None and view.now_ms - last > idle_ms

    return passes


def _verdict(row: GroupRow) -> str:
    return "" if row.verdict is None else row.verdict.name


async def _rows(view: View, groups: KnownGroups, names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows as they stand now; what cannot be had in time is as the sweep saw it, or empty."""
    watch = view.watch

    def is_known(name: str) -> bool:
        row = watch.survey.rows.get(name)
        return row is not None and row.at_ms >= watch.changed_ms

    stale = [name for name in names if _is_stale(view, name)]
    await watch.group_rows.look(stale, is_known)
    return [_row(watch, groups, name) for name in names]


def _is_stale(view: View, name: str) -> bool:
    seen = view.watch.survey.rows.get(name)
    oldest = max(view.now_ms - FRESH_MS, view.watch.changed_ms)
    return seen is None or seen.at_ms < oldest


def _row(watch: ClusterWatch, groups: KnownGroups, name: str) -> dict[str, Any]:
    listing = groups[name]
    swept = watch.survey.rows.get(name)
    asked = watch.group_rows.known(name)
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {
        "name": name, "state": listing.state, "coordinator": listing.coordinator,
        "reason": "", "at_ms": None, "protocol_type": listing.protocol_type,
    }  # fmt: skip
    if swept is not None:
        row |= swept.summary
    newer = asked.value
    if newer is not None and (swept is None or newer.at_ms > swept.at_ms):
        for column in ("state", "members", "topics", "lag", "seconds", "coordinator", "at_ms"):
            row[column] = newer.summary[column]
    row["problem"] = asked.problem and asked.problem.as_json()
    return row
