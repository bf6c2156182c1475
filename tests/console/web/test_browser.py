"""The console in a real browser: without scripts, with them, narrow, dark, and one whole story.

BARNABAS_SCREENSHOTS=docs/images keeps the pictures of docs/web-console.md.
Source: docs/spec/console.md §4 and §5.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from barnabas.client import SyncProducer
from barnabas.console.__main__ import main
from barnabas.console.web.pages.registry import PAGES
from tests.harness.axe import axe, violations
from tests.harness.browser import NARROW, Browser, Window, browser, chromium
from tests.harness.child import Child
from tests.harness.deployments import Deployment, create_topic
from tests.harness.own_client import Own
from tests.harness.waiting import eventually
from tests.harness.web_pages import OF_THE_SESSION, path_of

pytestmark = pytest.mark.browser

GROUP = "billing"
TOPIC = "invoices"
OTHER = "shipping"
LIVE = "events"
RECORDS = 120
NAMED = {"topic": TOPIC, "group": GROUP}


@pytest.fixture(scope="module")
def has_browser() -> None:
    """Before anything is started for it."""
    chromium()


@pytest.fixture(scope="module")
def filled(
    has_browser: None, cluster: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Deployment:
    """A topic with records, a group that is stuck at its beginning, and one that is well."""
    create_topic(cluster, Own(), TOPIC, 3, 3)
    create_topic(cluster, Own(), LIVE, 1, 3)
    with SyncProducer(cluster.bootstrap) as producer:
        for number in range(RECORDS):
            value = {"invoice": number, "customer": {"id": f"c-{number % 7}"}, "total": number * 3}
            producer.send(TOPIC, json.dumps(value).encode(), key=f"invoice-{number}".encode())
    for group, way in ((GROUP, "--to-earliest"), (OTHER, "--to-latest")):
        words = ["groups", "reset", group, "--topic", TOPIC, way, "--execute"]
        words += ["--timeout-ms", "60000"]
        undo = tmp_path_factory.mktemp("undo") / "undo.json"
        assert main([*words, "--undo-file", str(undo), "--bootstrap", cluster.bootstrap]) == 0
    return cluster


@pytest.fixture(scope="module")
def chrome(filled: Deployment) -> Iterator[Browser]:
    """Started last: its driver keeps a loop in this thread, beside which no other one runs."""
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def console(filled: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL that a console has printed."""
    command = [sys.executable, "-m", "barnabas.console", "console", "--json"]
    command += ["--bootstrap", filled.bootstrap, "--listen", "127.0.0.1:0"]
    command += ["--undo-directory", str(tmp_path_factory.mktemp("undo"))]
    with Child(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield json.loads(running.stdout.readline())["url"]
        running.terminate()
        running.wait(120)


def base_of(console: str) -> str:
    return console.partition("/login")[0]


@pytest.fixture(scope="module")
def cookies(chrome: Browser, console: str) -> Any:
    """Of somebody who has opened the URL."""
    with chrome.window() as window:
        window.open(console)
        assert "Overview" in window.text()
        return window.page.context.cookies()


@pytest.fixture(scope="module")
def plain(chrome: Browser, cookies: Any) -> Iterator[Window]:
    """A window for all pages in turn: to open one takes longer than to load a page."""
    with chrome.window(runs_scripts=False, cookies=cookies) as window:
        yield window


@pytest.mark.parametrize("page", PAGES)
def test_a_page_reads_without_scripts(plain: Window, console: str, page: str) -> None:
    answer = plain.open(base_of(console) + path_of(page, NAMED))
    assert answer.status == (404 if page in OF_THE_SESSION else 200)
    assert plain.page.locator("h1").count() == 1
    assert len(plain.text()) > 100


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_no_page_makes_the_browser_complain_or_ask_anybody_else(
    chrome: Browser, console: str, cookies: Any, colours: str
) -> None:
    with chrome.window(colours=colours, cookies=cookies) as window:
        for page in PAGES:
            window.open(base_of(console) + path_of(page, NAMED))
            assert window.page.evaluate("typeof htmx") == "object"
        assert window.complaints == []
        assert window.hosts == {base_of(console).partition("//")[2]}


@pytest.mark.parametrize("colours", ["light", pytest.param("dark", marks=pytest.mark.nightly)])
def test_no_page_keeps_out_who_reads_by_ear_or_without_a_mouse(
    chrome: Browser, console: str, cookies: Any, colours: str
) -> None:
    script = axe()
    with chrome.window(colours=colours, cookies=cookies) as window:
        found = {}
        for page in PAGES:
            window.open(base_of(console) + path_of(page, NAMED))
            if told := violations(window, script, only_colours=colours == "dark"):
                found[page] = told
        assert found == {}, "\n".join(f"{page} {one}" for page in found for one in found[page])


def test_on_a_narrow_screen_nothing_but_tables_has_to_be_pushed_aside(
    chrome: Browser, console: str, cookies: Any
) -> None:
    with chrome.window(size=NARROW, cookies=cookies) as window:
        wide = {}
        for page in PAGES:
            window.open(base_of(console) + path_of(page, NAMED))
            if window.width() > NARROW[0]:
                wide[page] = window.width()
        assert wide == {}


def test_a_page_that_refreshes_itself_leaves_the_reader_where_he_types(
    chrome: Browser, console: str, cookies: Any
) -> None:
    with chrome.window(cookies=cookies) as window:
        window.open(f"{base_of(console)}/groups")
        window.page.keyboard.press("/")
        window.page.keyboard.type("ship")
        with window.page.expect_response(lambda answer: "hx-request" in answer.request.headers):
            pass
        window.page.wait_for_timeout(300)
        assert window.page.evaluate("document.activeElement.name") == "q"
        assert window.page.evaluate("document.activeElement.value") == "ship"
        window.page.keyboard.press("Enter")
        window.page.wait_for_url("**/groups?*q=ship*")
        assert OTHER in window.text()
        assert GROUP not in window.page.inner_text("table")
        assert window.complaints == []


def test_keys_lead_to_pages_and_rows(chrome: Browser, console: str, cookies: Any) -> None:
    with chrome.window(cookies=cookies) as window:
        window.open(f"{base_of(console)}/overview")
        window.page.keyboard.press("g")
        window.page.keyboard.press("r")
        window.page.wait_for_url("**/groups")
        window.page.keyboard.press("j")
        window.page.keyboard.press("Enter")
        window.page.wait_for_url("**/group?name=*")


def test_what_is_written_from_now_on_appears_by_itself(
    chrome: Browser, console: str, cookies: Any, filled: Deployment
) -> None:
    with chrome.window(cookies=cookies) as window:
        window.open(f"{base_of(console)}/records?topic={LIVE}&from=live")
        window.page.wait_for_selector("text=What is written from now on appears at the top")
        with Child(
            [sys.executable, "-m", "barnabas.console", "produce", LIVE, "written <i>now</i>",
             "--bootstrap", filled.bootstrap, "--timeout-ms", "60000"]
        ) as sender:  # fmt: skip
            assert sender.wait(120) == 0
        window.page.wait_for_selector("tbody tr:first-child:has-text('written <i>now</i>')")
        assert window.complaints == []


def test_colours_and_the_time_zone_are_the_readers_choice(
    chrome: Browser, console: str, cookies: Any
) -> None:
    with chrome.window(cookies=cookies) as window:
        window.open(f"{base_of(console)}/topics")
        window.page.fill("input[name=zone]", "Asia/Kathmandu")
        window.page.select_option("select[name=theme]", "dark")
        window.page.click("footer button")
        window.page.wait_for_load_state()
        assert "+0545" in window.text()
        assert window.page.get_attribute("html", "data-theme") == "dark"


def picture(window: Window, name: str) -> None:
    """Keep what the reader sees, where somebody asked for it."""
    folder = os.environ.get("BARNABAS_SCREENSHOTS")
    if folder:
        window.page.screenshot(path=Path(folder) / f"{name}.png")


def test_the_story_log_in_see_a_stuck_group_reset_it_with_a_preview_and_take_it_back(
    chrome: Browser, console: str
) -> None:
    with chrome.window(size=(1100, 640)) as window:
        page = window.page
        window.open(base_of(console))
        assert "Log in" in window.text()
        window.open(console)

        def is_told() -> bool:
            window.open(f"{base_of(console)}/groups?q={GROUP}&verdict=ERR")
            return bool(page.locator(f"tr:has-text('{GROUP}') .verdict.err").count())

        eventually(is_told, what="the sweep finds the stuck group")
        window.open(f"{base_of(console)}/overview")
        assert "Groups that are not well" in window.text()
        picture(window, "console-overview")
        window.open(f"{base_of(console)}/groups?q={GROUP}&verdict=ERR")
        page.click(f"tr a:text-is('{GROUP}')")
        page.wait_for_selector("h1 .verdict.err")
        said = window.text()  # the second once its only commit is long ago
        assert "stays at one offset" in said or "commits no longer" in said
        picture(window, "console-group")

        page.click("a.button")
        page.select_option("select[name=way]", "to-latest")
        page.click("main button")
        page.wait_for_selector("#plan")
        assert f"Skips {RECORDS} records" in window.text()
        assert "invoice-" in window.text(), "the preview shows keys"
        page.fill("input[name=reason]", "paid by hand")
        page.evaluate("document.querySelector('#plan').scrollIntoView()")
        picture(window, "console-reset")
        page.click("button.danger")
        page.wait_for_selector("p.good")
        change = re.search(r"change=([0-9a-f]+)", page.url)
        assert change is not None

        page.click("a:has-text('Undo')")
        assert f"Reads {RECORDS} records again" in window.text()
        page.click("button.danger")
        page.wait_for_selector("p.good")
        window.open(f"{base_of(console)}/history?q={quote_plus(GROUP)}&change={change[1]}")

        def is_recorded() -> bool:
            page.reload()
            return "paid by hand" in window.text()

        eventually(is_recorded, what="the history has it")
        assert "token" in window.text() or "ANONYMOUS" in window.text()
        window.open(
            f"{base_of(console)}/records?topic={TOPIC}&where="
            + quote_plus('value.customer.id = "c-3" and value.total > 200')
        )
        picture(window, "console-records")
        assert window.complaints == []
