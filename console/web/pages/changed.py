"""What became of a change, as it was read again afterwards.

Source: docs/spec/console.md §0 (decision 5).
"""

from __future__ import annotations

from typing import Final

from barnabas.console.groups.plan import as_json
from barnabas.console.web.changes.pending import result_of
from barnabas.console.web.page import Page, View

from .not_found import not_found

COLUMNS: Final = (
    "group", "topic", "partition", "current_offset", "new_offset", "effect", "records", "error",
)  # fmt: skip


async def page(view: View) -> Page:
    """Each offset with its outcome; 404 for a change that this session did not make."""
    change = view.query.required("change")
    done = result_of(view.session, change)
    if done is None:
        return not_found(view, "change", change, None)
    result = done.result
    rows = [
        as_json(one, result.errors.get((one.group, one.topic_partition)))
        for one in result.plan.needed
    ]
    model = {
        "change": change,
        "group": done.group,
        "command": done.command,
        "is_good": result.is_good,
        "is_unclear": result.is_unclear,
        "undo_file": str(result.undo_file) if result.undo_file else None,
        "changes": rows,
        "returned": list(result.returned.values()),
        "deleted": [
            {"group": group, "error": result.group_errors.get(group)}
            for group in result.plan.deleted
        ],
    }
    return Page(
        title=f"Change {change}", template="changed.html", model=model, columns=COLUMNS,
        rows=rows, is_live=False,
    )  # fmt: skip
