"""Temporary directories, and what becomes of them when their maker ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.console.development.temporary_directory import TemporaryDirectory
from tests.harness.waiting import eventually

ROOT = Path(__file__).parents[3]
PROGRAM = """\
import os, sys
from barnabas.console.development.temporary_directory import TemporaryDirectory
made = TemporaryDirectory("barnabas-test-")
(made.path / "file").touch()
print(made.path, flush=True)
os.kill(os.getpid(), int(sys.argv[1]))
"""


def test_it_is_removed_with_everything_in_it() -> None:
    made = TemporaryDirectory("barnabas-test-")
    (made.path / "folder").mkdir()
    (made.path / "folder" / "file").touch()
    made.remove()
    assert not made.path.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_goes_when_its_maker_is_killed(how: signal.Signals) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(int(how))],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=120,
    )
    path = Path(done.stdout.strip())
    assert path.name.startswith("barnabas-test-")
    eventually(lambda: not path.exists(), what="the directory is removed")


def test_it_outlives_nobody_who_forgot_it() -> None:
    program = PROGRAM.rpartition("os.kill")[0]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=120,
    )
    path = Path(done.stdout.strip())
    eventually(lambda: not path.exists(), what="the directory is removed")
