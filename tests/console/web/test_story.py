"""The first ten minutes, as a newcomer spends them: the story that README tells, in a browser.

``barnabas up --demo``, the link, a stuck group, why, a reset with its preview, the undo, a node
that is killed, and its failover. Source: docs/spec/console.md §8.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.harness.browser import Browser, browser, chromium
from tests.harness.child import Child
from tests.harness.steady_settings import STEADY
from tests.harness.waiting import eventually

pytestmark = pytest.mark.browser


@dataclass(frozen=True, slots=True)
class Demo:
    """What `barnabas up --demo` has printed."""

    link: str
    pid: int
    """Of the node whose killing it proposes."""


@pytest.fixture
def demo() -> Iterator[Demo]:
    chromium()
    command = [sys.executable, "-m", "barnabas.console", "up", "--port", "0", "--demo"]
    for name, value in STEADY.items():  # no node is lost but the one that is killed
        command += ["--set", f"{name}={value}"]
    told = ""
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
        assert up.stdout is not None
        try:
            while not ("token=" in told and "kill -9" in told):
                line = up.stdout.readline()
                assert line, f"it ended before it was up: {told}"
                told += line
            (link,) = re.findall(r"http://\S+/login\?token=\S+", told)
            (pid,) = re.findall(r"^kill -9 (\d+)$", told, re.MULTILINE)
            yield Demo(link, int(pid))
        finally:
            up.send_signal(signal.SIGINT)
            up.communicate(timeout=120)


@pytest.fixture
def chrome(demo: Demo) -> Iterator[Browser]:
    """Started last: its driver keeps a loop in this thread."""
    with browser() as running:
        yield running


def test_a_newcomer_finds_a_stuck_group_helps_it_takes_that_back_and_loses_a_node(
    demo: Demo, chrome: Browser
) -> None:
    base = demo.link.partition("/login")[0]
    with chrome.window(size=(1100, 640)) as window:
        page = window.page
        window.open(demo.link)
        assert "Overview" in window.text()

        def shows(path: str, words: str) -> bool:
            window.open(base + path)
            return words in window.text()

        eventually(
            lambda: shows("/groups?verdict=ERR", "billing"), within_s=300, what="billing is ERR"
        )
        page.click("tr a:text-is('billing')")
        page.wait_for_selector("h1 .verdict.err")
        assert "stays at one offset" in window.text()

        page.click("a.button:has-text('Reset')")
        page.select_option("select[name=way]", "to-latest")
        page.check("input[name=evict]")
        page.click("main form.change button")
        page.wait_for_selector("#plan")
        assert "Skips" in window.text()
        assert "Takes 1 member out" in window.text()
        page.fill("input[name=typed]", "billing")
        page.fill("input[name=reason]", "the tenth order cannot be read")
        page.click("button.danger")
        page.wait_for_selector("p.good")
        change = page.url.rpartition("=")[2]

        window.open(f"{base}/undo?change={change}&evict=1&force=1")
        page.wait_for_selector("#plan")
        assert "Reads" in window.text()
        page.fill("input[name=typed]", "billing")
        page.click("button.danger")
        page.wait_for_selector("p.good")
        eventually(lambda: shows("/history?q=billing", "tenth order"), what="the history has it")

        os.kill(demo.pid, signal.SIGKILL)
        eventually(lambda: shows("/failovers", "silent"), within_s=300, what="the failover is told")
        assert page.locator("table tbody tr").count() >= 1
        assert window.complaints == []
