"""The list of groups: the sweep's verdicts, and fresh lag of the rows that are shown.

Source: docs/spec/console.md §2.3 (groups).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.admin.descriptions import GroupListing
from barnabas.console.web.glob_pattern import search_matcher
from barnabas.console.web.page import Page, View
from barnabas.console.web.rows import SortKey, cut
from barnabas.console.web.watch.cluster_watch import ClusterWatch
from barnabas.console.web.watch.standings import Standing

COLUMNS: Final = (
    "name", "state", "members", "topics", "lag", "seconds", "verdict", "reason", "coordinator",
    "last_commit_ms",
)  # fmt: skip
DAY_MS: Final = 86_400_000
FRESH_MS: Final = 5_000
"""Rows that the sweep saw longer ago are asked for again."""
PATIENCE_S: Final = 2.0
DEFAULT_SORT: Final = "-seconds"
_AT_ONCE: Final = 16


async def page(view: View) -> Page:
    """All groups that the filters let pass, the one that is furthest behind first."""
    watch = view.watch
    watch.survey.look()
    reading = await watch.catalogue.groups.read()
    listings = {listing.group: listing for listing in reading.value or []}
    known = watch.survey.standings
    passes = _filter(view)
    names = [name for name in listings if passes(listings[name], known.get(name))]
    part = cut(view.query, watch.orderings, names, _sort_values(listings, known), DEFAULT_SORT)
    shown = [name for name in part.names if name in listings]
    rows = await _rows(view, listings, shown)
    model = {
        "reading": reading.state(),
        "list": part.state(),
        "all": len(listings),
        "surveyed": len(known.keys() & listings.keys()),
        "survey_problem": watch.survey.problem and watch.survey.problem.as_json(),
        "groups": rows,
    }
    return Page(
        title="Groups", template="groups.html", model=model, columns=COLUMNS, rows=rows,
        next_url=part.next_url,
    )  # fmt: skip


def _filter(view: View) -> Callable[[GroupListing, Standing | None], bool]:
    """What the query lets pass; the query is read once, and not for each of 10,000 groups."""
    query = view.query
    matches = search_matcher(query.text("q"))
    states, verdicts = query.words("state"), query.words("verdict")
    idle_ms = query.number("idle", 0, 0, 36_500) * DAY_MS

    def passes(listing: GroupListing, standing: Standing | None) -> bool:
        if not matches(listing.group) or (states and listing.state not in states):
            return False
        if verdicts and (standing is None or _verdict(standing) not in verdicts):
            return False
        if not idle_ms:
            return True
        last = standing.summary["last_commit_ms"] if standing is not None else None
        return last is not None and view.now_ms - last > idle_ms

    return passes


def _verdict(standing: Standing) -> str:
    return "" if standing.verdict is None else standing.verdict.name


def _sort_values(
    listings: Mapping[str, GroupListing], known: Mapping[str, Standing]
) -> dict[str, SortKey]:
    rows = {name: standing.summary for name, standing in known.items()}

    def of(column: str) -> SortKey:
        return lambda name: rows[name][column] if name in rows else None

    return {
        "name": lambda name: name,
        "state": lambda name: listings[name].state if name in listings else None,
        **{column: of(column) for column in ("lag", "seconds", "members", "last_commit_ms")},
        "verdict": lambda name: int(known[name].verdict or 0) if name in known else None,
    }


async def _rows(
    view: View, listings: Mapping[str, GroupListing], names: Sequence[str]
) -> list[dict[str, Any]]:
    """The rows as they stand now; what cannot be had in time is as the sweep saw it, or empty."""
    stale = [name for name in names if _is_stale(view, name)]
    slots = asyncio.Semaphore(_AT_ONCE)

    async def ask(name: str) -> None:
        async with slots:
            await view.watch.rough_groups.read(name)

    if stale:
        asking = asyncio.gather(*map(ask, stale))
        await asyncio.wait([asking], timeout=PATIENCE_S)
    return [_row(view.watch, listings[name]) for name in names]


def _is_stale(view: View, name: str) -> bool:
    seen = view.watch.survey.standings.get(name)
    return seen is None or view.now_ms - seen.at_ms > FRESH_MS


def _row(watch: ClusterWatch, listing: GroupListing) -> dict[str, Any]:
    swept = watch.survey.standings.get(listing.group)
    asked = watch.rough_groups.source(listing.group).known()
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {
        "name": listing.group, "state": listing.state, "coordinator": listing.coordinator,
        "reason": "", "at_ms": None, "protocol_type": listing.protocol_type,
    }  # fmt: skip
    if swept is not None:
        row |= swept.row()
    newer = asked.value
    if newer is not None and (swept is None or newer.at_ms > swept.at_ms):
        fresh = newer.row()
        for column in ("state", "members", "topics", "lag", "seconds", "coordinator", "at_ms"):
            row[column] = fresh[column]
    row["problem"] = asked.problem and asked.problem.as_json()
    return row
