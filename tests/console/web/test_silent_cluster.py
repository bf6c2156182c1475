"""A cluster that takes connections and says nothing, while somebody has the console open.

Source: docs/spec/console.md §2.1 (errors belong to panels).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from barnabas.console.web import app
from barnabas.console.web.downloads import VALUE_PATH
from barnabas.console.web.pages.records import STREAM_PATH
from barnabas.console.web.pages.registry import PAGES
from tests.harness.web_console import NOWHERE, QUICK, reader_of
from tests.harness.web_pages import OF_THE_CONSOLE, path_of

OF_THE_SESSION = ("/changed", "/done", "/undo")
"""What these show is known without asking, or unknown."""

NAMED = {"topic": "a", "group": "a", "change": "a"}
TOLD = "cannot be read"


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The address of somebody who answers nothing."""

    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()


async def test_every_page_answers_in_bounded_time_and_says_that_the_cluster_does_not(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PAGE_S", 0.2)
    async with reader_of(silent, config=QUICK) as reader:
        for page in PAGES:
            async with asyncio.timeout(90):
                answer = await reader.get(path_of(page, NAMED))
            if page not in (*OF_THE_SESSION, *OF_THE_CONSOLE):
                # Once the connection has timed out, a panel says so and nobody has to wait.
                words = {502: "load the page again", 200: TOLD, 503: TOLD}
                assert answer.status_code in words, (page, answer.text)
                assert words[answer.status_code] in answer.text, page


async def test_the_value_and_the_stream_of_a_silent_cluster_are_refused_in_bounded_time(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "PAGE_S", 0.2)
    async with reader_of(silent, config=QUICK) as reader:
        for path in (VALUE_PATH, STREAM_PATH):
            async with asyncio.timeout(90):
                answer = await reader.get(f"{path}?topic=a&partition=0&offset=1")
            assert answer.status_code == 502, (path, answer.text)
            assert answer.text == "the cluster does not answer\n"


async def test_the_value_of_a_record_is_refused_in_a_word_where_nobody_listens() -> None:
    async with reader_of(NOWHERE) as reader:
        answer = await reader.get(f"{VALUE_PATH}?topic=a&partition=0&offset=1")
        assert answer.status_code == 502
        assert "refused" in answer.text
