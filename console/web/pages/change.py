"""A reset of a group: the scenario, what it changes, and which records that means.

Source: docs/spec/console.md §2.3 (change).
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.cluster import TopicPartition
from barnabas.console.command_line.failure import Failure
from barnabas.console.groups.plan import OffsetChange, as_json
from barnabas.console.web.changes.pending import GroupPlan, keep
from barnabas.console.web.changes.preview import Glance, previews
from barnabas.console.web.changes.resets import WAYS, reset_plan
from barnabas.console.web.page import Page, View
from barnabas.console.web.query import BadQuery
from barnabas.console.web.roles import Role

COLUMNS: Final = (
    "group", "topic", "partition", "current_offset", "new_offset", "effect", "records",
    "first_ms", "last_ms", "warning",
)  # fmt: skip


async def page(view: View) -> Page:
    """The form; with a way also the plan: what would be changed, and the records that it means."""
    group = view.query.required("group")
    view.session.rights.require(Role.OPERATOR, group=group)
    plan: dict[str, Any] | None = None
    problem = ""
    if view.query.text("way"):
        try:
            plan = await shown_plan(view, await reset_plan(view.watch.admin, view.query))
        except (BadQuery, Failure) as error:
            problem = str(error)
    model = {
        "group": group,
        "ways": [
            {"name": name, "label": way.label, "takes": way.read is not None,
             "example": way.example}
            for name, way in WAYS.items()
        ],
        "problem": problem,
        "plan": plan,
    }  # fmt: skip
    rows = plan["changes"] if plan else []
    return Page(
        title=f"Reset {group}", template="change.html", model=model, columns=COLUMNS, rows=rows,
        is_live=False,
    )  # fmt: skip


async def shown_plan(view: View, plan: GroupPlan) -> dict[str, Any]:
    """A plan for the reader; it is kept so that the form beneath it can have it done.

    Raises Forbidden for a group that the reader's role is not for.
    """
    require_groups(view, plan)
    result = plan.result.plan
    needed = result.needed
    found = await previews(view.watch.admin.cluster, needed, view.masks)
    is_possible = (
        bool(needed or result.deleted) and not result.refusals and not view.settings.is_read_only
    )
    if is_possible:
        keep(view.session, plan)
    rows = [_row(change, found) for change in result.changes]
    return {
        "id": plan.id if is_possible else None,
        "command": plan.command,
        "needed": len(needed),
        "deleted": list(result.deleted),
        "typed": plan.typed,
        "refused": [{"group": name, "why": why} for name, why in result.refusals.items()],
        "notes": list(result.notes),
        "changes": rows,
        **_totals(rows),
    }


def require_groups(view: View, plan: GroupPlan) -> None:
    """Raise Forbidden unless the reader may change every group of the plan."""
    result = plan.result.plan
    groups = {change.group for change in result.changes}
    groups |= {*result.deleted, *result.refusals}
    if plan.group:
        groups.add(plan.group)
    for group in groups:
        view.session.rights.require(Role.OPERATOR, group=group)


def _row(
    change: OffsetChange, found: dict[TopicPartition, tuple[Glance | None, Glance | None]]
) -> dict[str, Any]:
    first, last = found.get(change.topic_partition, (None, None))
    return {
        **as_json(change),
        "first": first and first.as_json(),
        "last": last and last.as_json(),
        "first_ms": first and first.timestamp_ms,
        "last_ms": last and last.timestamp_ms,
    }


def _totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many records are read again and skipped, and of which time, as far as was looked."""

    def of(effect: str) -> dict[str, Any]:
        some = [row for row in rows if row["effect"] == effect]
        times = [row[name] for row in some for name in ("first_ms", "last_ms")]
        known = [time for time in times if time is not None]
        return {
            "records": sum(row["records"] or 0 for row in some),
            "from_ms": min(known, default=None),
            "to_ms": max(known, default=None),
        }

    return {"replays": of("replay"), "skips": of("skip")}
