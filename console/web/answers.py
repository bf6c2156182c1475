"""From a page to an answer: HTML, JSON or CSV, with all that the head of a page shows.

Source: docs/spec/console.md §2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from .console_settings import ConsoleSettings
from .page import Page, View, as_csv, as_json
from .pages.navigation import NAVIGATION, section_of
from .pages.records import record_row
from .query import Query
from .records.matching import ShownRecord
from .render import environment, times
from .roles import Role
from .session import Session
from .watch.reading import now_ms
from .zones import zone_of

REFRESH_S: Final = (2, 3600)
FRAGMENT: Final = "hx-request"
"""The header by which htmx asks for the part of a page that it puts in place of the old one."""


class Answers:
    """Renders whatever is answered."""

    def __init__(self, bootstrap: str, settings: ConsoleSettings) -> None:
        self._bootstrap = bootstrap
        self._settings = settings

    def page(self, request: Request, view: View, page: Page, kind: str, path: str) -> Response:
        """A page in the form that its URL asks for."""
        if kind == "json":
            return Response(as_json(page, view.now_ms), page.status, media_type="application/json")
        if kind == "csv" and page.columns:
            headers = {"link": f'<{_csv(page.next_url)}>; rel="next"'} if page.next_url else {}
            return Response(as_csv(page), page.status, headers, media_type="text/csv")
        if kind == "csv":
            status = page.status if page.status >= 400 else 404
            return Response("this page has no table\n", status, media_type="text/plain")
        return self._html(request, view.session, page, view.query, path)

    def record_rows(self, request: Request, topic: str, records: Sequence[ShownRecord]) -> str:
        """Rows of the table of records, for a stream."""
        zone = zone_of(request.cookies.get("zone", ""))
        return (
            environment()
            .get_template("record_rows.html")
            .render(
                records=[record_row(record) for record in records], topic=topic,
                **times(zone, now_ms()),
            )
        )  # fmt: skip

    def message(
        self, request: Request, session: Session | None, status: int, text: str
    ) -> Response:
        """A page that says no more than this."""
        page = Page(
            title="This cannot be done", template="message.html", model={"text": text},
            status=status,
        )  # fmt: skip
        return self._html(request, session, page, Query("/overview", {}), "")

    def login(
        self, request: Request, back: str, *, problem: str = "", status: int = 200
    ) -> Response:
        """Where one logs in."""
        model = {"problem": problem, "back": safe_back(back), "auth": self._settings.auth}
        page = Page(title="Log in", template="login.html", model=model, status=status)
        return self._html(request, None, page, Query("/login", {}), "")

    def _html(
        self, request: Request, session: Session | None, page: Page, query: Query, path: str
    ) -> Response:
        now = now_ms()
        zone = zone_of(request.cookies.get("zone", ""))
        theme = request.cookies.get("theme", "auto")
        known: dict[str, Any] = {
            "page": page, "query": query, "session": session, "now_ms": now, "zone": zone,
            "theme": theme if theme in ("light", "dark") else "auto",
            "bootstrap": self._bootstrap, "navigation": NAVIGATION, "section": section_of(path),
            "read_only": self._settings.is_read_only,
            "may": _may(session, self._settings),  "here": query.url() if path else "/overview",
            "can_log_out": self._settings.auth != "none", "refresh_s": _refresh(query),
            "formats": bool(path), "json_url": query.url("json"), "csv_url": query.url("csv"),
        }  # fmt: skip
        is_part = request.headers.get(FRAGMENT) == "true"
        known["is_live"] = page.is_live and bool(path)
        known["layout"] = "fragment.html" if is_part else "base.html"
        text = (
            environment()
            .get_template(page.template)
            .render(**known, **times(zone, now), **page.model)
        )
        return HTMLResponse(text, page.status, {"vary": FRAGMENT})


def _may(session: Session | None, settings: ConsoleSettings) -> dict[str, bool]:
    """Which forms are led to: those that this reader's role allows here."""
    role = 0 if session is None or settings.is_read_only else session.rights.role
    return {"operate": role >= Role.OPERATOR, "administer": role >= Role.ADMIN}


def safe_back(text: str) -> str:
    """Where a form leads back to: a path of ours, else the overview."""
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\"))
    if not is_ours or "\\" in text or not text.isprintable():
        return "/overview"
    parts = urlsplit(text)  # a path: it raises for hosts alone
    return "/overview" if parts.scheme or parts.netloc else text


def _refresh(query: Query) -> int:
    """``?refresh=10`` has a browser without JavaScript load the page again."""
    text = query.given.get("refresh", "")
    least, most = REFRESH_S
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        return 0
    return min(most, max(least, int(text)))


def _csv(url: str) -> str:
    path, mark, rest = url.partition("?")
    return f"{path}.csv{mark}{rest}"
