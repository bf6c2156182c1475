"""What became of a change of the cluster, as it was read again afterwards.

Source: docs/spec/console.md §0 (decision 5).
"""

from __future__ import annotations

from typing import Final

from barnabas.console.web.changes.pending import done_of
from barnabas.console.web.page import Page, View

from .not_found import not_found

COLUMNS: Final = ("what", "old", "new")


async def page(view: View) -> Page:
    """Before, after and outcome; 404 for a change that this session did not make."""
    change = view.query.required("change")
    done = done_of(view.session, change)
    if done is None:
        return not_found(view, "change", change, None)
    rows = [dict(row) for row in done.rows]
    model = {
        "change": change,
        "summary": done.summary,
        "problem": done.problem,
        "undo_url": done.undo_url,
        "back": done.back,
        "rows": rows,
    }
    return Page(
        title=f"Change {change}", template="done.html", model=model, columns=COLUMNS, rows=rows,
        is_live=False,
    )  # fmt: skip
