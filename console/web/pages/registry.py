"""Every page by its path: the one list that routes, navigation and tests are made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.console.web.page import PageFunction

from . import (
    access,
    alter,
    barrier,
    brokers,
    change,
    changed,
    coordinator,
    group,
    groups,
    history,
    leases,
    overview,
    record,
    records,
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
    "/transactions": transactions.page,
    "/access": access.page,
    "/history": history.page,
    "/change": change.page,
    "/undo": undo.page,
    "/changed": changed.page,
    "/alter": alter.page,
}
"""Each answers as HTML at its path, and with the endings .json and .csv."""
