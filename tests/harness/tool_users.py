"""Which tests look for programs that a machine may lack: written down in one run, used by another.

CI runs everything where all programs are installed. Where none is, it runs the tests that had asked
for one (tests/harness/needs.py), in their call or by a fixture of theirs: others cannot tell the
difference. A test counts with all its parameters, since one that skips must leave the next alone.

    pytest --note-tool-users DIRECTORY    each worker writes who asked
    pytest --only-tool-users DIRECTORY    runs those, and what tests/bare.txt marks as a sample
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest

from . import needs
from .listed_tests import entries, sampled

NOTE: Final = "--note-tool-users"
ONLY: Final = "--only-tool-users"

Fixture = tuple[str, str]
"""Where it is defined, and its name."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two options of CI's."""
    parser.addoption(NOTE, metavar="DIRECTORY", help="write down which tests look for programs")
    parser.addoption(ONLY, metavar="DIRECTORY", help="run only tests that were written down so")


def register(config: pytest.Config) -> None:
    """Do what the options ask for."""
    if directory := config.getoption(NOTE):
        config.pluginmanager.register(ToolUsers(Path(directory)))


def function_of(nodeid: str) -> str:
    """A test without its parameters."""
    return nodeid.split("[", 1)[0]


class ToolUsers:
    """Notes who asks for programs in this process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tests: set[str] = set()
        self._fixtures: set[Fixture] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        """Whoever uses a fixture that asked counts as having asked."""
        before = needs.asked()
        try:
            return (yield)
        finally:
            if needs.asked() != before:
                self._fixtures.add(_key(fixturedef))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Setup by marker, the call itself, and fixtures that are asked for by name."""
        before = needs.asked()
        try:
            return (yield)
        finally:
            if needs.asked() != before:
                self._tests.add(function_of(item.nodeid))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """One file a worker."""
        found = self._tests | {
            function_of(item.nodeid) for item in session.items if self._fixtures & _used_by(item)
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        name = os.environ.get("PYTEST_XDIST_WORKER", "main")
        (self._directory / name).write_text("".join(f"{one}\n" for one in sorted(found)))


def _key(fixture: Any) -> Fixture:
    return fixture.baseid, fixture.argname


def _used_by(item: pytest.Item) -> set[Fixture]:
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return set()
    found = [info.name2fixturedefs.get(name, ()) for name in info.names_closure]
    return {_key(fixture) for fixtures in found for fixture in fixtures}


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what was written down, and the sample, if that was asked for."""
    if not (directory := config.getoption(ONLY)):
        return
    users = {
        line for file in sorted(Path(directory).iterdir()) for line in file.read_text().splitlines()
    }
    if not users:
        raise pytest.UsageError(f"{directory} names no test: was {NOTE} given to a whole run?")
    samples = tuple(sampled(entries("bare.txt")))
    left = [
        item
        for item in items
        if function_of(item.nodeid) in users or item.nodeid.startswith(samples)
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(left)])
    items[:] = left
