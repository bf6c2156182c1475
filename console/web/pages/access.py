"""Who may do what: access control lists, quotas, and users with passwords in the cluster.

Passwords are neither asked for nor shown. Source: docs/spec/console.md §2.3 (access).
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.client.admin.quotas import QuotaDescription
from barnabas.console.web.glob_pattern import search_matcher
from barnabas.console.web.operations.access import quota_values
from barnabas.console.web.page import Page, View
from barnabas.console.web.watch.access import AclRow, UserRow
from barnabas.console.web.watch.reading import Reading

COLUMNS: Final = (
    "principal", "host", "operation", "permission", "resource", "name", "pattern",
)  # fmt: skip
ROWS_MOST: Final = 2_000
_NO_AUTHORIZER: Final = "SECURITY_DISABLED"


async def page(view: View) -> Page:
    """The three lists, filtered by a part of a principal or of a name."""
    watch = view.watch
    matches = search_matcher(view.query.text("q"))
    acls = await watch.acls.read()
    quotas = await watch.quotas.read()
    users = await watch.users.read()
    rows = [_acl(row) for row in acls.value or [] if matches(row.principal) or matches(row.name)]
    model = {
        "acls": {**_state(acls), "rows": rows[:ROWS_MOST], "total": len(rows)},
        "quotas": {
            **_state(quotas),
            "rows": [row for row in map(_quota, quotas.value or []) if matches(row["entity"])],
        },
        "users": {
            **_state(users),
            "rows": [_user(row) for row in users.value or [] if matches(row.name)],
        },
    }
    return Page(
        title="Access", template="access.html", model=model, columns=COLUMNS,
        rows=rows[:ROWS_MOST],
    )  # fmt: skip


def _state(reading: Reading[Any]) -> dict[str, Any]:
    is_off = reading.problem is not None and reading.problem.code == _NO_AUTHORIZER
    state = reading.state()
    return {**state, "problem": None if is_off else state["problem"], "is_off": is_off}


def _acl(row: AclRow) -> dict[str, Any]:
    return row._asdict()


def _quota(found: QuotaDescription) -> dict[str, Any]:
    parts = [f"{kind} {name if name is not None else '(default)'}"
             for kind, name in sorted(found.entity.items(), reverse=True)]  # fmt: skip
    return {
        "entity": ", ".join(parts),
        "fields": dict(quota_values(found.entity, found.quotas)),
        "quotas": [{"name": name, "value": value} for name, value in sorted(found.quotas.items())],
    }


def _user(row: UserRow) -> dict[str, Any]:
    return {
        "name": row.name, "credentials": list(row.credentials), "mechanisms": list(row.mechanisms),
    }  # fmt: skip
