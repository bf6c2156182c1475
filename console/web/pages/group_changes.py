"""A group forgets what it has committed of some topics, or is deleted: planned like a reset.

Source: docs/spec/console.md §2.3 (change); docs/spec/users.md §2.1.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from barnabas.console.command_line.failure import Failure
from barnabas.console.groups.apply_plan import Planner
from barnabas.console.groups.delete import forget_summary, planned_delete, planned_forget
from barnabas.console.groups.scope import TopicScope, topic_scope
from barnabas.console.web.changes.resets import group_plan
from barnabas.console.web.page import Page, View
from barnabas.console.web.query import BadQuery
from barnabas.console.web.roles import Role

from .change import COLUMNS, shown_plan


async def delete_page(view: View) -> Page:
    """What is lost with a group: every offset; its name has to be typed."""
    group = view.query.required("group")
    view.session.rights.require(Role.OPERATOR, group=group)
    chosen = argparse.Namespace(names=[group], more_names=[], all_groups=False)
    return await _page(view, group, chosen, planned_delete, "delete", typed=group)


async def forget_page(view: View) -> Page:
    """The form; with topics also which offsets are forgotten."""
    group = view.query.required("group")
    view.session.rights.require(Role.OPERATOR, group=group)
    text = view.query.text("topics")
    if not text.strip():
        return _shown(view, group, "forget", None, "")
    try:
        topics = _scopes(text)
    except BadQuery as error:
        return _shown(view, group, "forget", None, str(error))
    chosen = argparse.Namespace(group=group, topics=topics)
    return await _page(
        view, group, chosen, planned_forget, forget_summary(chosen), "forget", typed=group
    )


def _scopes(text: str) -> Sequence[TopicScope]:
    try:
        return [topic_scope(word) for word in text.split()]
    except argparse.ArgumentTypeError as problem:
        raise BadQuery(str(problem)) from None


async def _page(
    view: View,
    group: str,
    chosen: argparse.Namespace,
    planner: Planner,
    command: str,
    what: str = "delete",
    *,
    typed: str,
) -> Page:
    try:
        made = await group_plan(
            view.watch.admin, chosen, planner, group, command, view.query.url(), typed=typed
        )
        return _shown(view, group, what, await shown_plan(view, made), "")
    except Failure as error:
        return _shown(view, group, what, None, str(error))


def _shown(view: View, group: str, what: str, plan: dict[str, Any] | None, problem: str) -> Page:
    title = f"Delete {group}" if what == "delete" else f"Forget offsets of {group}"
    return Page(
        title=title, template="group_change.html",
        model={"group": group, "what": what, "plan": plan, "problem": problem}, columns=COLUMNS,
        rows=plan["changes"] if plan else [], is_live=False,
    )  # fmt: skip
