"""A real browser: Debian's headless Chromium, driven by Playwright; nothing else is downloaded.

Everything that knows Playwright is here, so that another driver could take its place.
Source: docs/spec/console.md §5.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from .needs import program, skip_without

WAIT_MS: Final = 180_000
"""For a page, and for the browser itself: half a minute is not enough on a busy machine."""
WIDE: Final = (1100, 720)
NARROW: Final = (360, 740)


def chromium() -> str:
    """The path of the browser; skips where there is none, or no driver."""
    if importlib.util.find_spec("playwright") is None:
        skip_without("no playwright", "pip install playwright")
    return program("chromium-headless-shell", "chromium", package="chromium-headless-shell")


@dataclass(slots=True)
class Window:
    """One window, and whatever it complained about."""

    page: Any
    """Playwright's Page: untyped, so that this file alone knows it."""
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def open(self, url: str) -> Any:
        """Load a page and return its answer."""
        return self.page.goto(url, wait_until="load")

    def text(self) -> str:
        """What the reader sees."""
        found: str = self.page.inner_text("body")
        return found

    def width(self) -> int:
        """How wide the content is, in pixels."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth")
        return found


class Browser:
    """A running browser."""

    def __init__(self, running: Any) -> None:
        self._running = running

    @contextmanager
    def window(
        self,
        *,
        runs_scripts: bool = True,
        size: tuple[int, int] = WIDE,
        colours: str = "light",
        cookies: Any = None,
    ) -> Iterator[Window]:
        """A window of its own, with no cookies but those given."""
        context = self._running.new_context(
            java_script_enabled=runs_scripts,
            viewport={"width": size[0], "height": size[1]},
            color_scheme=colours,
        )
        context.set_default_timeout(WAIT_MS)
        if cookies:
            context.add_cookies(cookies)
        window = Window(context.new_page())
        window.page.on("console", lambda said: _note(window, said))
        window.page.on("pageerror", lambda error: window.complaints.append(str(error)))
        window.page.on("requestfailed", lambda asked: _failed(window, asked))
        window.page.on("request", lambda asked: window.hosts.add(urlsplit(asked.url).netloc))
        try:
            yield window
        finally:
            context.close()


def _note(window: Window, said: Any) -> None:
    """Errors and reports of the content security policy; an answer above 399 is no complaint."""
    if said.type in ("error", "warning") and "Failed to load resource" not in said.text:
        window.complaints.append(said.text)


def _failed(window: Window, asked: Any) -> None:
    if "ERR_ABORTED" not in (asked.failure or ""):  # the reader went on before it was there
        window.complaints.append(f"{asked.url}: {asked.failure}")


@contextmanager
def browser() -> Iterator[Browser]:
    """Start it; it ends with the block. Skips where there is none."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox"], timeout=WAIT_MS
        )
        try:
            yield Browser(running)
        finally:
            running.close()
