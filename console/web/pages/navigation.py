"""What the head of each page links to, and the key that leads there after ``g``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.console.web.operations.registry import OPERATIONS

NAVIGATION: Final = (
    ("/overview", "Overview", "o"),
    ("/brokers", "Brokers", "b"),
    ("/topics", "Topics", "t"),
    ("/groups", "Groups", "r"),
    ("/coordinator", "Coordinators", "c"),
    ("/leases", "Leases", "l"),
    ("/failovers", "Failovers", "f"),
    ("/events", "Events", "e"),
    ("/transactions", "Transactions", "x"),
    ("/access", "Access", "a"),
    ("/reports", "Reports", "s"),
    ("/history", "History", "h"),
)
"""Path, label, key."""
_BELOW: Final[Mapping[str, str]] = {
    "/topic": "/topics",
    "/alter": "/topics",
    "/records": "/topics",
    "/record": "/topics",
    "/group": "/groups",
    "/change": "/groups",
    "/barrier": "/groups",
    "/timeline": "/groups",
    "/changed": "/history",
    "/undo": "/history",
    "/hanging": "/transactions",
    "/done": "/history",
    "/group-delete": "/groups",
    "/group-forget": "/groups",
    **{path: operation.section for path, operation in OPERATIONS.items()},
}


def section_of(path: str) -> str:
    """The entry that is marked while a page is shown."""
    return _BELOW.get(path, path)
