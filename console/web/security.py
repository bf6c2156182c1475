"""What every answer carries and every request must bring: headers, host, origin, read-only.

An ASGI middleware, so that no page can be without it. Source: docs/spec/console.md §3 (security).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .console_settings import ConsoleSettings

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    # Not no-referrer: with that browsers send `Origin: null` with our own forms (Fetch, "append a
    # request Origin header"), and the origin could not be compared.
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NO_STORE: Final = "no-store"
STRICT_TRANSPORT: Final = "max-age=31536000"
HEALTH_PATH: Final = "/healthz"
SAFE_METHODS: Final = ("GET", "HEAD")
SESSION_PATHS: Final = ("/login", "/logout", "/preferences")
"""What may be posted in read-only mode: it changes nothing but the reader's own session."""


class SecurityMiddleware:
    """Refuses what no page should see, and puts the headers on whatever is answered."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message))
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, guarded)

    def _add_headers(self, headers: MutableHeaders) -> None:
        for name, value in HEADERS.items():
            headers.setdefault(name, value)  # a report has a policy of its own, a stricter one
        headers.setdefault("cache-control", NO_STORE)
        if self._settings.is_secure:
            headers["strict-transport-security"] = STRICT_TRANSPORT

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # A prober asks by an address, and is told nothing.
        if not self._settings.allows_host(host) and scope["path"] != HEALTH_PATH:
            return PlainTextResponse(
                "This console does not answer by that host name (see --allowed-host).\n", 421
            )
        if scope["method"] in SAFE_METHODS:
            return None
        if self._settings.is_read_only and scope["path"] not in SESSION_PATHS:
            return PlainTextResponse("This console is read-only.\n", 403)
        if not comes_from_here(headers, host):
            return PlainTextResponse("The request comes from another site.\n", 403)
        return None


def comes_from_here(headers: Headers, host: str) -> bool:
    """Whether one of our own pages sent it; a program that is no browser says neither."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == host
    except ValueError:  # "http://[": no browser sends that
        return False
