"""An address of every page of the console, with parameters under which it has something to show.

Whoever adds a page adds it here: every test of all pages takes its addresses from this list, and
fails for one that is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.console.web.operations.registry import OPERATIONS
from barnabas.console.web.pages.registry import PAGES

_ACL: Final = (
    "?plan=1&principal=User:bob&permission=Allow&operation=Read&resource=Topic&name={topic}"
    "&pattern=Literal"
)
EXAMPLES: Final[Mapping[str, str]] = {
    "/overview": "",
    "/brokers": "",
    "/topics": "",
    "/topic": "?name={topic}",
    "/records": "?topic={topic}",
    "/record": "?topic={topic}&partition=0&offset=0",
    "/groups": "",
    "/group": "?name={group}",
    "/timeline": "?group={group}",
    "/barrier": "?group={group}&since=1&at=%7B%22{topic}%22:%7B%220%22:1%7D%7D",
    "/coordinator": "",
    "/leases": "",
    "/failovers": "",
    "/events": "",
    "/transactions": "",
    "/hanging": "",
    "/access": "",
    "/reports": "",
    "/history": "",
    "/change": "?group={group}&way=to-latest&topics={topic}",
    "/undo": "?change={change}",
    "/changed": "?change={change}",
    "/alter": "?topic={topic}&setting=retention.ms&value=1000",
    "/group-delete": "?group={group}",
    "/group-forget": "?group={group}&topics={topic}",
    "/done": "?change={done}",
    "/topic-create": "?plan=1&name={topic}.new&partitions=1",
    "/topic-delete": "?plan=1&name={topic}",
    "/topic-partitions": "?plan=1&name={topic}&count=12",
    "/acl-add": _ACL,
    "/acl-remove": _ACL,
    "/quota-set": "?plan=1&user={topic}&quotas=producer_byte_rate%3D1000000",
    "/user-set": "?plan=1&user={topic}&mechanism=SCRAM-SHA-256",
    "/user-remove": "?plan=1&user={topic}&mechanism=SCRAM-SHA-256",
    "/transaction-abort": "?plan=1&topic={topic}&partition=0&start_offset=0",
}
OF_THE_CONSOLE: Final = ("/reports",)
"""Pages for which no cluster is asked."""
OF_THE_SESSION: Final = ("/changed", "/done")
"""Pages about what the reader has done: another one finds nothing there."""


def path_of(page: str, named: Mapping[str, str], ending: str = "") -> str:
    """Where a page has something to show; ``named``: topic, group, change and done."""
    known = {"change": "none", "done": "none", **named}
    return page + ending + EXAMPLES[page].format(**known)


assert set(EXAMPLES) == set(PAGES), "a page has no example, or an example no page"
assert set(OPERATIONS) <= set(PAGES)
