"""The groups that a node coordinates, page by page: the answer of /status/groups.

A page is what the last survey found (group_lag_monitor.py), in one order, from behind a row on.
Source: docs/spec/console.md §2.1 (keyset, search) and §2.2.
"""

from __future__ import annotations

import fnmatch
import heapq
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from barnabas.coordinator.group_health import Verdict

from .group_lag_monitor import GroupLag, LagReport

ROWS: Final = 50
ROWS_MAX: Final = 500
Key = tuple[float | str, str]


class BadQuery(ValueError):  # noqa: N818 - what it is
    """What was asked for makes no sense; the text says what."""


def group_page(report: LagReport, query: Mapping[str, str], now_ms: int) -> dict[str, Any]:
    """One page: ``q`` (part of a name, or a glob with ``*``), ``sort``, ``after``, ``n``.

    ``after`` is ``next`` of the page before. Raises BadQuery.
    """
    rows = _count(query.get("n", str(ROWS)))
    word = query.get("sort", "-seconds")
    name, is_falling = word.removeprefix("-"), word.startswith("-")
    if name not in _ORDERS:
        raise BadQuery(f"sort must be one of {', '.join(_ORDERS)}, with - before it for falling")
    matching = list(_matching(report.groups, query.get("q", "")))
    after = _after(query["after"], is_name=name == "name") if query.get("after") else None

    def key(group: GroupLag) -> Key:
        value = _ORDERS[name](group)
        return (-value if is_falling and not isinstance(value, str) else value), group.seen.group_id

    if is_falling and name == "name":
        ordered = sorted(matching, key=key, reverse=True)
        chosen = [group for group in ordered if after is None or key(group) < after][: rows + 1]
    else:
        left = matching if after is None else [group for group in matching if key(group) > after]
        chosen = heapq.nsmallest(rows + 1, left, key=key)
    page = chosen[:rows]
    return {
        "version": 1,
        "as_of_ms": report.at_ms,
        "now_ms": now_ms,
        "total": len(report.groups),
        "matching": len(matching),
        "next": json.dumps(key(page[-1])) if len(chosen) > rows else None,
        "groups": [row_of(group) for group in page],
    }


def row_of(group: GroupLag) -> dict[str, Any]:
    """One group as a row; ``seconds`` None where no age is known."""
    return {
        "group": group.seen.group_id,
        "state": group.seen.state.value,
        "members": group.seen.members,
        "topics": len({place.topic for place in group.partitions}),
        "partitions": len(group.partitions),
        "lag": lag_of(group),
        "seconds": seconds_of(group),
        "verdict": group.verdict.name,
        "worst": worst_of(group).name,
        "commits": group.seen.commits,
        "last_commit_ms": _last_commit(group),
    }


def lag_of(group: GroupLag) -> int:
    """Records that all its partitions have still to read."""
    return sum(partition.lag.records for partition in group.partitions.values())


def seconds_of(group: GroupLag) -> float | None:
    """The age of its oldest unread record."""
    known = [one.seconds for one in group.partitions.values() if one.seconds is not None]
    return max(known, default=None)


def worst_of(group: GroupLag) -> Verdict:
    """The verdict of its worst partition, by its own name."""
    return max((one.verdict for one in group.partitions.values()), default=group.verdict)


def _last_commit(group: GroupLag) -> int:
    """Ms since 1970 of its newest commit, 0 without any."""
    return max((commit.committed_ms for commit in group.seen.offsets.values()), default=0)


_ORDERS: Final[Mapping[str, Callable[[GroupLag], float | str]]] = {
    "seconds": lambda group: seconds_of(group) or 0.0,
    "lag": lag_of,
    "verdict": lambda group: int(worst_of(group)),
    "members": lambda group: group.seen.members,
    "last-commit": _last_commit,
    "name": lambda group: group.seen.group_id,
}


def _matching(groups: Iterable[GroupLag], text: str) -> Iterable[GroupLag]:
    if "*" in text:
        return (one for one in groups if fnmatch.fnmatchcase(one.seen.group_id, text))
    return (one for one in groups if text in one.seen.group_id)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= ROWS_MAX:
        raise BadQuery(f"n must be a number from 1 to {ROWS_MAX}")
    return int(text)


def _after(text: str, *, is_name: bool) -> Key:
    try:
        value, name = json.loads(text)
    except (ValueError, TypeError):
        value, name = None, ""
    is_fit = isinstance(value, str) if is_name else type(value) in (int, float)
    if not is_fit or not isinstance(name, str):
        raise BadQuery("after must be what a page in the same order gave as next")
    return value, name
