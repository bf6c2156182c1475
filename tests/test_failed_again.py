"""CI runs a few tests that failed again, alone, and names them (.ci/failed_again.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

AGAIN = Path(__file__).parents[1] / ".ci" / "failed_again.py"

ONCE = """
from pathlib import Path

def test_it():
    tried = Path("tried")
    is_first = not tried.exists()
    tried.touch()
    assert not is_first
"""
ALWAYS = "def test_it():\n    assert False\n"
NINE = "".join(f"def test_{number}():\n    assert False\n" for number in range(9))


def run(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # ours take seconds
    return subprocess.run(
        [sys.executable, *words],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def tried_again(directory: Path, test: str) -> subprocess.CompletedProcess[str]:
    (directory / "test_one.py").write_text(test)
    run(directory, "-m", "pytest", "-q", "-p", "no:xdist", "--rootdir", ".")
    return run(directory, str(AGAIN))


def test_a_test_that_failed_once_and_passes_alone_is_forgiven_and_named(tmp_path: Path) -> None:
    again = tried_again(tmp_path, ONCE)
    assert again.returncode == 0, again.stdout
    assert "FAILED ONCE" in again.stdout
    assert "test_one.py::test_it" in again.stdout


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    assert tried_again(tmp_path, ALWAYS).returncode == 1


def test_more_than_eight_failures_are_not_run_again(tmp_path: Path) -> None:
    again = tried_again(tmp_path, NINE)
    assert again.returncode == 1
    assert "9 tests" in again.stdout


def test_a_run_of_which_nothing_is_known_is_not_forgiven(tmp_path: Path) -> None:
    assert run(tmp_path, str(AGAIN)).returncode == 1
