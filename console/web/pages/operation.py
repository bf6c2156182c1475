"""The page of an operation: its form, what it would change, and the button that does it.

Source: docs/spec/console.md §0 (decision 5) and §2.3.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.errors import KafkaError
from barnabas.console.groups.apply_plan import is_refusal
from barnabas.console.web.changes.pending import OperationPlan, keep, new_id
from barnabas.console.web.operations.operation import Impossible, Operation, Planned
from barnabas.console.web.page import Page, PageFunction, View
from barnabas.console.web.query import BadQuery

COLUMNS: Final = ("what", "old", "new")
PLAN: Final = "plan"
"""In the URL: the form was sent, and not only opened."""


def page_of(operation: Operation) -> PageFunction:
    """The page of one operation."""

    async def page(view: View) -> Page:
        return await _page(view, operation)

    return page


async def _page(view: View, operation: Operation) -> Page:
    values = {one.name: view.query.text(one.name) for one in operation.fields}
    planned: Planned | None = None
    problem = ""
    if view.query.flag(PLAN):
        try:
            planned = await operation.plan(view, values)
        except (BadQuery, Impossible) as error:
            problem = str(error)
        except KafkaError as error:
            if not is_refusal(error.code):
                raise
            # The form stays: what was typed is not lost.
            problem = f"The cluster refuses: {error}"
    plan = None if planned is None else _shown(view, operation, planned, values)
    model = {
        "operation": {
            "path": operation.path, "title": operation.title, "verb": operation.verb,
            "aside": operation.aside,
        },
        "fields": [
            {"name": one.name, "label": one.label, "example": one.example,
             "choices": list(one.choices), "is_long": one.is_long, "is_needed": one.is_needed,
             "value": values[one.name]}
            for one in operation.fields
        ],
        "problem": problem,
        "plan": plan,
    }  # fmt: skip
    return Page(
        title=operation.title, template="operation.html", model=model, columns=COLUMNS,
        rows=plan["rows"] if plan else [], is_live=False,
    )  # fmt: skip


def _shown(
    view: View, operation: Operation, planned: Planned, values: dict[str, str]
) -> dict[str, Any]:
    rows = [row.as_json() for row in planned.rows]
    plan = OperationPlan(new_id(), operation.path, values, rows, view.query.url())
    is_possible = planned.is_needed and not view.settings.is_read_only
    if is_possible:
        keep(view.session, plan)
    return {
        "id": plan.id if is_possible else None,
        "summary": planned.summary,
        "rows": rows,
        "notes": list(planned.notes),
        "typed": planned.typed,
        "secret": planned.secret,
        "is_needed": planned.is_needed,
    }
