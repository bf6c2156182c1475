"""The way back from a change: planned, shown and applied like any other.

Source: docs/spec/console.md §2.3 (history); docs/spec/coordinator.md §3.8.
"""

from __future__ import annotations

import argparse
from typing import Any

from barnabas.console.command_line.failure import Failure
from barnabas.console.groups.undo import planned_undo
from barnabas.console.web.changes.pending import result_of
from barnabas.console.web.changes.resets import group_plan
from barnabas.console.web.page import Page, View

from .change import COLUMNS, shown_plan


async def page(view: View) -> Page:
    """The offsets before and after; refused where the group has moved on, unless forced."""
    change = view.query.required("change")
    done = result_of(view.session, change)
    # A foreign cluster has no history: what this session did is in its undo file. The file is never
    # named by the reader.
    file = done.result.undo_file if done is not None else None
    chosen = argparse.Namespace(
        file=file, change=change, force=view.query.flag("force"), evict=view.query.flag("evict")
    )
    plan: dict[str, Any] | None = None
    problem = ""
    try:
        made = await group_plan(
            view.watch.admin, chosen, planned_undo, done.group if done else "",
            f"undo {change}", view.query.url(),
        )  # fmt: skip
        plan = await shown_plan(view, made)
    except Failure as error:
        problem = str(error)
    model = {
        "change": change, "plan": plan, "problem": problem, "force": chosen.force,
        "evict": chosen.evict,
    }  # fmt: skip
    return Page(
        title=f"Undo {change}", template="undo.html", model=model, columns=COLUMNS,
        rows=plan["changes"] if plan else [], is_live=False,
    )  # fmt: skip
