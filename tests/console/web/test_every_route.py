"""What holds for every route: no script needed, headers, read-only, tokens, hosts, escaping.

Source: docs/spec/console.md §3 (security) and §5.
"""

from __future__ import annotations

import asyncio
import csv
import io
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote_plus

import pytest
import pytest_asyncio
from starlette.routing import Route

from barnabas.client import Producer
from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import Committed, NewTopic
from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import TopicPartition
from barnabas.console.web import app
from barnabas.console.web.page import Page, PageFunction, View
from barnabas.console.web.pages.registry import PAGES
from barnabas.console.web.security import CSP, HEALTH_PATH, SESSION_PATHS
from tests.harness.deployments import Deployment, await_leaders
from tests.harness.web_console import FORM, NOWHERE, QUICK, Reader, reader_of, seen
from tests.harness.web_pages import OF_THE_CONSOLE, OF_THE_SESSION, path_of

MARKUP: Final = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"
SECRET: Final = "correct-horse-battery"


ONE_LOOP: Final = pytest.mark.asyncio(loop_scope="module")
"""Tests that ask one console, with one topic and one change to show: these take longest to make."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def named(cluster: Deployment) -> dict[str, str]:
    """A topic with a record, and a group whose name is markup."""
    mark = uuid.uuid4().hex[:12]
    topic, group = f"topic-{mark}", f"group-{mark}{MARKUP}"
    async with Admin.of(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(name=topic, partitions=2)])
        await asyncio.to_thread(await_leaders, cluster, topic, 2)
        async with Producer(cluster.bootstrap) as producer:
            await producer.send(topic, MARKUP.encode(), key=MARKUP.encode(), partition=0)
        place = TopicPartition(topic, 0)
        await admin.alter_offsets(group, {place: Committed(offset=0, metadata=MARKUP)})
    return {
        "topic": topic, "group": quote_plus(group), "raw_group": group, "change": "none",
        "done": "none", "count": "3",
    }  # fmt: skip


class Hostile:
    """Pages whose every text is markup while :meth:`texts` says so."""

    def __init__(self) -> None:
        self._is_on = False

    def of(self, page: PageFunction) -> PageFunction:
        """The same page, but for its texts."""

        async def hostile(view: View) -> Page:
            found = await page(view)
            if not self._is_on:
                return found
            return replace(found, model=marked(found.model), title=MARKUP)

        return hostile

    @contextmanager
    def texts(self) -> Iterator[None]:
        """Meanwhile."""
        self._is_on = True
        yield
        self._is_on = False


@dataclass(frozen=True, slots=True)
class Shown:
    """Somebody who has changed something, and what may turn the pages that he sees into markup."""

    reader: Reader
    hostile: Hostile


async def change_something(reader: Reader, named: dict[str, str]) -> None:
    """A reset by a form, so that there is a change to be shown."""
    way = f"group={named['group']}&topics={named['topic']}:1&way=to-latest"
    plan = (await reader.json(f"/change.json?{way}"))["plan"]["id"]
    done = await reader.post("/change/apply", {"plan": plan, "reason": MARKUP})
    assert done.status_code == 303, done.text
    named["change"] = done.headers["location"].rpartition("=")[2]
    made = f"/topic-partitions.json?plan=1&name={named['topic']}&count={named['count']}"
    named["count"] = str(int(named["count"]) + 1)
    plan = (await reader.json(made))["plan"]["id"]
    done = await reader.post("/operation/apply", {"plan": plan, "reason": MARKUP})
    assert done.status_code == 303, done.text
    named["done"] = done.headers["location"].rpartition("=")[2]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(cluster: Deployment, named: dict[str, str]) -> AsyncIterator[Shown]:
    hostile = Hostile()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(app, "PAGES", {path: hostile.of(page) for path, page in PAGES.items()})
        opened = reader_of(cluster.bootstrap)
        reader = await opened.__aenter__()
    try:
        await change_something(reader, named)
        yield Shown(reader, hostile)
    finally:
        await opened.__aexit__(None, None, None)


@pytest.fixture
def reader(shown: Shown) -> Reader:
    return shown.reader


@ONE_LOOP
@pytest.mark.parametrize("page", PAGES)
async def test_a_page_reads_without_javascript_and_lets_the_browser_load_nothing_else(
    reader: Reader, named: dict[str, str], page: str
) -> None:
    answer = await reader.get(path_of(page, named))
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-security-policy"] == CSP
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    found = seen(answer.text)
    assert sum(tag == "h1" for tag, _ in found.tags) == 1
    assert None not in found.scripts, "a script stands in the page"
    assert all((source or "").startswith("/static/") for source in found.scripts)
    assert all(link.startswith(("/", "#")) for link in found.links)
    for tag, attributes in found.tags:
        assert tag not in ("style", "iframe", "object", "embed")
        bad = [name for name in attributes if name.startswith("on") or name == "style"]
        assert not bad, (tag, bad)


@ONE_LOOP
@pytest.mark.parametrize("page", PAGES)
async def test_a_page_answers_as_json_and_as_csv(
    reader: Reader, named: dict[str, str], page: str
) -> None:
    document = await reader.json(path_of(page, named, ".json"))
    assert document["as_of_ms"] > 0
    answer = await reader.get(path_of(page, named, ".csv"))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/csv")
    header, *rows = csv.reader(io.StringIO(answer.text))
    assert header
    assert all(len(row) == len(header) for row in rows)


@pytest.mark.parametrize("page", PAGES)
async def test_nobody_sees_a_page_who_has_not_logged_in(page: str) -> None:
    async with reader_of(NOWHERE, is_in=False) as stranger:
        answer = await stranger.get(page)
        assert answer.status_code == 401
        assert "Log in" in answer.text
        assert (await stranger.get(f"{page}.json")).status_code == 401
        assert (await stranger.get(f"{page}.csv")).status_code == 401


@ONE_LOOP
@pytest.mark.parametrize("page", PAGES)
async def test_markup_in_whatever_is_shown_stays_text(
    shown: Shown, named: dict[str, str], page: str
) -> None:
    """Every text of the model is replaced by markup: whichever may come from a client one day."""
    with shown.hostile.texts():
        answer = await shown.reader.get(path_of(page, named))
    assert answer.status_code == 200, answer.text
    assert "<script>alert" not in answer.text
    assert "<img src=x" not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "{{7*7}}" in answer.text, "a template was made of a text"


def marked(value: Any) -> Any:
    """The same with markup for each text."""
    if isinstance(value, str):
        return MARKUP
    if isinstance(value, list):
        return [marked(part) for part in value]
    if isinstance(value, dict):
        return {name: marked(part) for name, part in value.items()}
    return value


@ONE_LOOP
async def test_a_group_named_by_markup_is_shown_and_led_to(
    reader: Reader, named: dict[str, str]
) -> None:
    answer = await reader.get(path_of("/group", named))
    assert named["raw_group"] in "".join(seen(answer.text).text)
    listed = await reader.get("/groups?q=*script*" + "&n=500")
    assert path_of("/group", named) in seen(listed.text).links


async def test_a_console_that_is_read_only_renders_no_form_that_changes_anything(
    cluster: Deployment, named: dict[str, str]
) -> None:
    async with reader_of(cluster.bootstrap, is_read_only=True) as reader:
        for page in PAGES:
            answer = await reader.get(path_of(page, named))
            posts = [action for method, action in seen(answer.text).forms if method != "get"]
            assert set(posts) <= set(SESSION_PATHS)
            assert "read-only" in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_a_console_that_is_read_only_refuses_all_but_get_head_and_logins(
    method: str,
) -> None:
    async with reader_of(NOWHERE, is_read_only=True) as reader:
        for route in paths(reader):
            if route not in SESSION_PATHS:
                answer = await reader.http.request(method, route, headers=FORM)
                assert answer.status_code == 403, route
                assert "read-only" in answer.text


async def test_a_form_without_the_token_of_the_session_changes_nothing() -> None:
    async with reader_of(NOWHERE) as reader:
        for route in paths(reader, "POST"):
            if route == "/login":
                continue
            for fields in ({"reason": "none"}, {"csrf": "guessed"}):
                answer = await reader.http.post(route, data=fields, headers=FORM)
                assert answer.status_code == 403, route
                assert "out of date" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9081"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_a_form_of_another_site_is_refused_even_with_the_token(
    headers: dict[str, str],
) -> None:
    async with reader_of(NOWHERE) as reader:
        token = await reader.csrf()
        for route in paths(reader, "POST"):
            answer = await reader.http.post(route, data={"csrf": token}, headers=headers)
            assert answer.status_code == 403, route


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9080", "", "127.0.0.1.evil.com"])
async def test_another_host_name_is_answered_421_before_anything_is_looked_at(host: str) -> None:
    async with reader_of(NOWHERE) as reader:
        for route in paths(reader):
            answer = await reader.http.get(route, headers={"host": host})
            # A prober asks by whatever address it has, and is told that the loop answers.
            assert answer.status_code == (200 if route == HEALTH_PATH else 421)
            assert answer.headers["content-security-policy"] == CSP


def paths(reader: Reader, method: str | None = None) -> list[str]:
    """Every route of the console, or those that answer a method."""
    return [
        route.path
        for route in reader.console.routed.routes
        if isinstance(route, Route) and (method is None or method in (route.methods or ()))
    ]


async def test_no_secret_stands_in_any_answer(
    cluster: Deployment, named: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    config = ClientConfig(security_protocol="PLAINTEXT", client_id="looks", ssl_key_password=SECRET)
    async with reader_of(cluster.bootstrap, config=config) as reader:
        secrets = [SECRET, reader.console.logins.token.text, *reader.http.cookies.values()]
        for page in PAGES:
            for ending in ("", ".json", ".csv"):
                answer = await reader.get(path_of(page, named, ending))
                for secret in secrets:
                    assert secret not in answer.text
                    assert secret not in str(answer.url)
        told = "\n".join(
            record.getMessage() for record in caplog.records if "httpx" not in record.name
        )
        for secret in secrets:
            assert secret not in told


async def test_a_failure_of_ours_is_answered_with_all_headers_and_without_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(view: View) -> Page:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(app, "PAGES", {**PAGES, "/topics": broken})
    async with reader_of(NOWHERE) as reader:
        answer = await reader.get("/topics")
    assert answer.status_code == 500
    assert answer.headers["content-security-policy"] == CSP
    assert SECRET not in answer.text


async def test_a_cluster_that_nobody_answers_for_leaves_no_page_blank() -> None:
    async with reader_of(NOWHERE, config=replace(QUICK, api_timeout_ms=500)) as reader:
        for page in PAGES:
            if page in (*OF_THE_SESSION, *OF_THE_CONSOLE):
                continue
            named = {"topic": "t", "group": "g", "change": "c"}
            answer = await reader.get(path_of(page, named))
            assert answer.status_code in (200, 502, 503), (page, answer.text)
            assert "NETWORK_EXCEPTION" in answer.text
            assert "<h1>" in answer.text
