"""What a console tells of itself: to whom, in which format, and that the manual names all of it.

Source: docs/spec/console.md §6.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.web_console import NOWHERE, ORIGIN, Reader, reader_of

MANUAL = Path(__file__).parents[3] / "docs" / "web-console.md"
TOKEN = "collector"


async def scrape(reader: Reader, peer: str = "127.0.0.1", **headers: str) -> httpx.Response:
    """Asked from somewhere, by somebody who has not logged in."""
    transport = httpx.ASGITransport(reader.console.app, client=(peer, 4711))
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as stranger:
        return await stranger.get("/metrics", headers=headers)


async def test_every_family_stands_in_the_manual_and_the_manual_names_no_other() -> None:
    async with reader_of(NOWHERE) as reader:
        await reader.get("/overview")
        text = (await scrape(reader)).text
    families = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    named = set(re.findall(r"\b((?:process|barnabas_console)_\w+)", MANUAL.read_text()))
    assert families == named


async def test_answers_are_counted_by_page_and_names_that_are_made_up_are_not() -> None:
    async with reader_of(NOWHERE, is_in=False) as reader:
        await reader.get("/groups.json")
        await reader.get("/made-up-1")
        await reader.get("/made-up-2")
        text = (await scrape(reader)).text
        assert 'barnabas_console_requests_total{page="/groups.json",code="401"} 1' in text
        assert 'barnabas_console_requests_total{page="other",code="404"} 2' in text
        assert "made-up" not in text
        assert 'barnabas_console_request_seconds_count{kind="json"} 1' in text


async def test_whoever_asks_for_open_metrics_gets_them() -> None:
    async with reader_of(NOWHERE) as reader:
        answer = await scrape(reader, accept="application/openmetrics-text; version=1.0.0")
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")
    assert "# TYPE barnabas_console info" in answer.text


@pytest.mark.parametrize(
    ("settings", "peer", "token", "code"),
    [
        ({}, "127.0.0.1", "", 200),
        ({}, "::ffff:127.0.0.1", "", 200),
        ({}, "192.0.2.7", "", 401),
        ({}, "192.0.2.7", "Bearer ", 401),
        ({"metrics_token": TOKEN}, "192.0.2.7", "Bearer collector", 200),
        ({"metrics_token": TOKEN}, "192.0.2.7", "Bearer other", 401),
        ({"metrics_token": ""}, "192.0.2.7", "Bearer ", 401),
        ({"metrics_token": TOKEN, "is_behind_proxy": True}, "127.0.0.1", "", 401),
        ({"metrics_token": TOKEN, "is_behind_proxy": True}, "10.1.1.1", "Bearer collector", 200),
    ],
)
async def test_the_loopback_may_read_and_others_show_the_token(
    settings: dict[str, Any], peer: str, token: str, code: int
) -> None:
    async with reader_of(NOWHERE, is_in=False, **settings) as reader:
        answer = await scrape(reader, peer, authorization=token)
        assert answer.status_code == code
        assert TOKEN not in answer.text


async def test_the_health_is_told_to_everybody_and_says_nothing_else() -> None:
    async with reader_of(NOWHERE, is_in=False) as reader:
        answer = await reader.http.get("/healthz", headers={"host": "10.0.0.7:9080"})
    assert (answer.status_code, answer.text) == (200, "ok\n")
