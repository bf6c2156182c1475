"""CI's second run has the tests that looked for programs (tests/harness/tool_users.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.harness.listed_tests import sampled
from tests.harness.tool_users import NOTE, ONLY

ROOT = Path(__file__).parents[1]
CONFTEST = """
from tests.harness import tool_users
from tests.harness.tool_users import pytest_addoption

def pytest_configure(config):
    tool_users.register(config)

def pytest_collection_modifyitems(config, items):
    tool_users.select(config, items)
"""
TESTS = """
import pytest
from tests.harness import needs

@pytest.fixture(scope="session")
def tool():
    return needs.program("sh", package="dash")

@pytest.fixture
def by_another(tool):
    return tool

@pytest.mark.parametrize("number", [1, 2])
def test_in_its_call(number):
    if number == 2:
        needs.program("sh", package="dash")

def test_by_a_fixture(tool): ...

def test_by_a_fixture_that_was_there_already(by_another): ...

def test_by_a_fixture_by_name(request):
    request.getfixturevalue("tool")

def test_for_want_of_it():
    needs.program("no-such-program", package="none")

def test_of_python_alone(): ...
"""


def run(directory: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", ".", *words],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_only_tests_that_looked_for_a_program_are_run_again(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    first = run(tmp_path, NOTE, "users")
    assert "6 passed, 1 skipped" in first
    again = run(tmp_path, ONLY, "users")
    assert "4 passed, 1 skipped, 2 deselected" in again, again
    assert "test_of_python_alone" not in again


def test_a_list_of_nobody_is_an_error_and_no_green_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text("def test_of_python_alone(): ...")
    run(tmp_path, NOTE, "users")
    assert "names no test" in run(tmp_path, ONLY, "users")


def test_entries_with_a_star_are_run_whole() -> None:
    assert sampled(["# *", "*tests/a", "tests/b"]) == ["tests/a"]
