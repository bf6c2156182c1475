"""Who moved which offset, when and why; each change can be taken back.

Source: docs/spec/console.md §2.3 (audit); docs/spec/coordinator.md §3.8.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from barnabas.console.web.glob_pattern import search_matcher
from barnabas.console.web.page import Page, View
from barnabas.console.web.query import BadQuery
from barnabas.console.web.watch.cluster_watch import AUDIT_MOST
from barnabas.protocol.audit_topic import AuditRecord

COLUMNS: Final = (
    "time_ms", "change", "group", "topic", "partition", "old_offset", "new_offset", "action",
    "principal", "host", "client_id", "reason", "what",
)  # fmt: skip


async def page(view: View) -> Page:
    """The latest records first; filtered by group, topic and change."""
    query = view.query
    reading = await view.watch.audit.read()
    matches = search_matcher(query.text("q"))
    change, topic = query.text("change"), query.text("topic")
    found = [
        record
        for record in reading.value or []
        if matches(record.group)
        and (not change or record.change == change)
        and (not topic or record.topic == topic)
    ]
    start = _start(query.after, len(found))
    shown = found[start : start + query.rows]
    rows = [_row(record) for record in shown]
    end = start + len(shown)
    model = {
        "reading": reading.state(),
        "records": rows,
        "list": {"shown": len(shown), "total": len(found), "is_first": start == 0},
        "kept": AUDIT_MOST,
        "changes": [_change(line) for line in reversed(view.watch.changes)],
    }
    return Page(
        title="History", template="history.html", model=model, columns=COLUMNS, rows=rows,
        next_url=query.url(after=f'[{end},"row"]') if end < len(found) else None,
    )  # fmt: skip


def _start(after: tuple[Any, str] | None, count: int) -> int:
    if after is None:
        return 0
    if not isinstance(after[0], int):
        raise BadQuery("after is none that this page has given")
    return min(max(0, after[0]), count)


def _change(line: Mapping[str, Any]) -> dict[str, Any]:
    """A change that was made through this console, since it was started."""
    return {
        "time_ms": line["time_ms"],
        "principal": line["principal"],
        "change": line.get("change"),
        "what": line.get("what", ""),
        "outcome": line.get("outcome"),
    }


def _row(record: AuditRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(record).items() if name in COLUMNS}
