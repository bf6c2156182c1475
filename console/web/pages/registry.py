"""Every page by its path: the one list that routes, navigation and tests are made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.console.web.operations.registry import OPERATIONS
from barnabas.console.web.page import PageFunction
from barnabas.console.web.roles import Role

from . import (
    access,
    alter,
    barrier,
    brokers,
    change,
    changed,
    coordinator,
    done,
    events,
    failovers,
    group,
    group_changes,
    groups,
    hanging,
    history,
    leases,
    operation,
    overview,
    record,
    records,
    reports,
    timeline,
    topic,
    topics,
    transactions,
    undo,
)

PAGES: Final[Mapping[str, PageFunction]] = {
    "/overview": overview.page,
    "/brokers": brokers.page,
    "/topics": topics.page,
    "/topic": topic.page,
    "/records": records.page,
    "/record": record.page,
    "/groups": groups.page,
    "/group": group.page,
    "/timeline": timeline.page,
    "/barrier": barrier.page,
    "/coordinator": coordinator.page,
    "/leases": leases.page,
    "/failovers": failovers.page,
    "/events": events.page,
    "/transactions": transactions.page,
    "/hanging": hanging.page,
    "/access": access.page,
    "/reports": reports.page,
    "/history": history.page,
    "/change": change.page,
    "/undo": undo.page,
    "/changed": changed.page,
    "/alter": alter.page,
    "/group-delete": group_changes.delete_page,
    "/group-forget": group_changes.forget_page,
    "/done": done.page,
    **{path: operation.page_of(one) for path, one in OPERATIONS.items()},
}
"""Each answers as HTML at its path, and with the endings .json and .csv."""

REQUIRED: Final[Mapping[str, Role]] = {
    "/change": Role.OPERATOR,
    "/undo": Role.OPERATOR,
    "/alter": Role.OPERATOR,
    "/group-delete": Role.OPERATOR,
    "/group-forget": Role.OPERATOR,
    **{path: one.role for path, one in OPERATIONS.items()},
}
"""The role that a page takes; a viewer's is enough for all others."""
