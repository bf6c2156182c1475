"""A web console that is asked over ASGI: its pages as a browser without JavaScript sees them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import httpx

from barnabas.client.client_config import ClientConfig
from barnabas.console.web.app import Console
from barnabas.console.web.console_settings import ConsoleSettings

ORIGIN: Final = "http://127.0.0.1:9080"
NOWHERE: Final = "127.0.0.1:1"
"""Nobody listens there."""
QUICK: Final = ClientConfig(api_timeout_ms=10_000, connect_timeout_ms=2_000)
"""For clusters that do not answer."""
PATIENT: Final = ClientConfig(connect_timeout_ms=30_000)
"""For those that do: a node on a busy machine takes its time to greet a client."""
FORM: Final = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
"""What a browser says with a form of our own."""


@dataclass(slots=True)
class Reader:
    """A browser without JavaScript."""

    console: Console
    http: httpx.AsyncClient

    async def get(self, path: str) -> httpx.Response:
        """One page."""
        return await self.http.get(path)

    async def json(self, path: str) -> Any:
        """A page's model; the path has its ending."""
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def log_in(self) -> httpx.Response:
        """By the URL that was printed."""
        return await self.http.get(f"/login?token={self.console.logins.token.text}")

    async def csrf(self) -> str:
        """The token of this session's forms."""
        found = re.search(r'name="csrf" value="([^"]+)"', (await self.get("/coordinator")).text)
        assert found is not None
        return found[1]

    async def post(self, path: str, fields: Mapping[str, str] | None = None) -> httpx.Response:
        """Send a form of ours, with its token."""
        data = {"csrf": await self.csrf(), **(fields or {})}
        return await self.http.post(path, data=data, headers=FORM)


@asynccontextmanager
async def reader_of(
    bootstrap: str, *, config: ClientConfig | None = None, is_in: bool = True, **settings: Any
) -> AsyncIterator[Reader]:
    """A console for a cluster, and somebody who has logged in, unless ``is_in`` says no.

    Without a ``config`` a cluster is waited for, unless it is NOWHERE.
    """
    config = config or (QUICK if bootstrap == NOWHERE else PATIENT)
    place = tempfile.TemporaryDirectory(prefix="barnabas-undo-")
    known = {"undo_directory": Path(place.name), **settings}
    console = Console(bootstrap, config, ConsoleSettings(**known))
    transport = httpx.ASGITransport(console.app, raise_app_exceptions=False)
    with place:
        async with _opened(console, transport) as reader:
            if is_in and console.settings.auth == "token":
                assert (await reader.log_in()).status_code == 303
            yield reader


@asynccontextmanager
async def _opened(console: Console, transport: httpx.ASGITransport) -> AsyncIterator[Reader]:
    async with (
        console.routed.router.lifespan_context(console.routed),
        httpx.AsyncClient(transport=transport, base_url=ORIGIN) as http,
    ):
        yield Reader(console, http)


@dataclass(slots=True)
class Seen:
    """What a page's HTML holds."""

    links: list[str] = field(default_factory=list)
    forms: list[tuple[str, str]] = field(default_factory=list)
    """Method and action of each."""
    scripts: list[str | None] = field(default_factory=list)
    """The source of each; None for one that stands in the page."""
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    text: list[str] = field(default_factory=list)


def seen(html: str) -> Seen:
    """What a browser makes of it."""
    found = Seen()

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            named = dict(attrs)
            found.tags.append((tag, named))
            if tag == "a":
                found.links.append(named.get("href") or "")
            if tag == "form":
                found.forms.append((named.get("method") or "get", named.get("action") or ""))
            if tag == "script":
                found.scripts.append(named.get("src"))

        def handle_data(self, data: str) -> None:
            found.text.append(data)

    Parser().feed(html)
    return found
