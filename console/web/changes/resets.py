"""From the fields of a page to what ``barnabas groups reset`` would have been told.

Source: docs/spec/users.md §2.1 (the ways to say where a group is to go on).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.client.admin.admin import Admin
from barnabas.console.groups.apply_plan import ChangeResult, Planner, plan_change
from barnabas.console.groups.offsets_csv import INT64_MAX, INT64_MIN
from barnabas.console.groups.reset import planned, summary
from barnabas.console.groups.scope import TopicScope, topic_scope
from barnabas.console.groups.time_arguments import datetime_ms, duration_ms
from barnabas.console.web.query import BadQuery, Query

from .pending import GroupPlan, new_id


class Way(NamedTuple):
    """One way to say where to go on."""

    label: str
    read: Callable[[str], int] | None = None
    """How its value is read; None for a way without one."""
    example: str = ""


def _whole(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number") from None
    if not INT64_MIN <= number <= INT64_MAX:
        raise argparse.ArgumentTypeError(f"{text} does not fit into 64 bits")
    return number


WAYS: Final[Mapping[str, Way]] = {
    "to-earliest": Way("the first record still kept"),
    "to-latest": Way("the end: only what comes from now on"),
    "to-datetime": Way("the first record of a time or later", datetime_ms, "2026-11-27T14:00:00"),
    "by-duration": Way("the first record of the time before now", duration_ms, "PT1H30M"),
    "shift-by": Way("so many on, or back", _whole, "-100"),
    "to-offset": Way("one offset in every partition", _whole, "1204"),
    "to-current": Way("where it is; the end where it is nowhere"),
}
"""The eighth, a CSV file, is the command line's."""


def asked(query: Query) -> argparse.Namespace:
    """What the command would have been told; raises BadQuery."""
    way = query.text("way")
    if way not in WAYS:
        raise BadQuery(f"way must be one of {', '.join(WAYS)}")
    chosen: dict[str, Any] = dict.fromkeys(
        ("to_datetime", "by_duration", "shift_by", "to_offset", "from_file")
    )
    chosen |= dict.fromkeys(("to_earliest", "to_latest", "to_current"), False)
    read = WAYS[way].read
    chosen[way.replace("-", "_")] = True if read is None else _value(query, read)
    topics = _topics(query.text("topics"))
    return argparse.Namespace(
        names=[query.required("group")], more_names=[], all_groups=False,
        all_topics=not topics, topics=topics, evict=query.flag("evict"), **chosen,
    )  # fmt: skip


def _value(query: Query, read: Callable[[str], int]) -> int:
    text = query.text("value").strip()
    if not text:
        raise BadQuery("say a value: this way needs one")
    try:
        return read(text)
    except argparse.ArgumentTypeError as problem:
        raise BadQuery(str(problem)) from None


def _topics(text: str) -> Sequence[TopicScope]:
    try:
        return [topic_scope(word) for word in text.split()]
    except argparse.ArgumentTypeError as problem:
        raise BadQuery(str(problem)) from None


async def reset_plan(admin: Admin, query: Query) -> GroupPlan:
    """Plan a reset; nothing is changed. Raises BadQuery, Failure, KafkaError."""
    chosen = asked(query)
    return await group_plan(
        admin, chosen, planned, chosen.names[0], summary(chosen), query.url(force=None)
    )


async def group_plan(
    admin: Admin, chosen: argparse.Namespace, planner: Planner, group: str, command: str, url: str,
    *, typed: str | None = None,
) -> GroupPlan:  # fmt: skip
    """Plan any change of one group."""
    result: ChangeResult = await plan_change(admin, chosen, planner)
    if result.plan.evicted:
        typed, command = " ".join(sorted(result.plan.evicted)), f"{command} --evict"
    return GroupPlan(new_id(), group, command, result, chosen, url, typed)
