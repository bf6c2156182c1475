"""What forms of pages do: the only ways in which the console changes a cluster.

Each takes a plan that its session was shown. Source: docs/spec/console.md §0 (decision 5).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from barnabas.console.web.changes.execution import (
    REASON_MOST,
    MovedOn,
    apply_group_plan,
    apply_setting_plan,
)
from barnabas.console.web.changes.operation_plan import apply_operation
from barnabas.console.web.changes.pending import (
    GroupPlan,
    OperationPlan,
    SettingPlan,
    keep_result,
    take,
)
from barnabas.console.web.operations.registry import APPLY_PATH, OPERATIONS
from barnabas.console.web.page import Page, View
from barnabas.console.web.query import BadQuery, url_of
from barnabas.console.web.roles import Role

from .change import require_groups

Action = Callable[[View, Mapping[str, str]], Awaitable[str | Page]]
"""Returns where the browser is sent then, or a page that says why nothing was done."""

_USED: Final = "This plan was used already, or is too old. Nothing was changed by this request."


async def apply_change(view: View, form: Mapping[str, str]) -> str | Page:
    """Move the offsets of a group as planned."""
    plan = take(view.session, form)
    if not isinstance(plan, GroupPlan):
        return refused(409, _USED)
    require_groups(view, plan)
    if plan.typed is not None and form.get("typed", "").strip() != plan.typed:
        again = f"Type {plan.typed} into the field before the button. Nothing was changed."
        return refused(400, again, plan.url)
    try:
        await apply_group_plan(view, plan, reason_of(form))
    except MovedOn as moved:
        return refused(409, f"{moved}. Nothing was changed.", plan.url)
    keep_result(view.session, plan)
    return url_of("/changed", {"change": plan.result.change_id})


async def apply_setting(view: View, form: Mapping[str, str]) -> str | Page:
    """Set a setting of a topic as planned."""
    plan = take(view.session, form)
    if not isinstance(plan, SettingPlan):
        return refused(409, _USED)
    view.session.rights.require(Role.OPERATOR, topic=plan.topic)
    reading = await view.watch.catalogue.settings.read(plan.topic)
    now = next((one for one in reading.value or [] if one.name == plan.name), None)
    if now is None or now.value != plan.shown_old:
        return refused(409, "The setting has another value now. Nothing was changed.", plan.url)
    await apply_setting_plan(view, plan, reason_of(form))
    return url_of("/topic", {"name": plan.topic}) + "#settings"


async def apply_planned_operation(view: View, form: Mapping[str, str]) -> str | Page:
    """Change the cluster as planned."""
    plan = take(view.session, form)
    if not isinstance(plan, OperationPlan):
        return refused(409, _USED)
    operation = OPERATIONS[plan.path]
    view.session.rights.require(operation.role)
    try:
        done = await apply_operation(view, operation, plan, form, reason_of(form))
    except MovedOn as moved:
        return refused(409, f"{moved}. Nothing was changed.", plan.url)
    except BadQuery as problem:
        return refused(400, f"{problem}. Nothing was changed.", plan.url)
    keep_result(view.session, done)
    return url_of("/done", {"change": done.change})


def reason_of(form: Mapping[str, str]) -> str:
    """What its maker says of a change; an overlong text is cut."""
    return form.get("reason", "").strip()[:REASON_MOST]


def refused(status: int, text: str, again: str = "") -> Page:
    """A page that says why nothing was done, and where to plan anew."""
    return Page(
        title="Nothing was changed", template="refused.html",
        model={"text": text, "again": again}, status=status, is_live=False,
    )  # fmt: skip


ACTIONS: Final[Mapping[str, Action]] = {
    "/change/apply": apply_change,
    "/alter/apply": apply_setting,
    APPLY_PATH: apply_planned_operation,
}
"""By path; each is reached by POST only, with the token of the session."""
