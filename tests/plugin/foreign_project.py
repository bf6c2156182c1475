"""Runs pytest in a project that is not ours, and says what is left of it afterwards."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.harness.waiting import eventually

OURS = ("BARNABAS_", "KAFKA_", "PYTEST_", "COVERAGE_")


class ForeignProject:
    """A project in a directory of its own, with an own place for temporary files.

    All processes that come from it carry a mark in their environment, whoever their parent is.
    """

    def __init__(self, python: Path, home: Path) -> None:
        self.project = home / "project"
        self.temporary = home / "temporary"
        self.project.mkdir()
        self.temporary.mkdir()
        self._python = python
        self._mark = f"ELSEWHERE={uuid.uuid4().hex}"

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Begin Python with these arguments; its output is to be read."""
        return subprocess.Popen(
            [str(self._python), *arguments],
            cwd=self.project,
            env={**self._environment(), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run_pytest(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """The exit code of ``python -m pytest``, and what it wrote."""
        return self.run("-m", "pytest", *arguments, **environment)

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """The exit code of Python, and what it wrote."""
        with self.start(*arguments, **environment) as running:
            said, _ = running.communicate(timeout=600)
        return running.returncode, said

    def await_nothing_left(self) -> None:
        """Return once no process and no file of a cluster is left."""
        eventually(lambda: not self._pids(), what="no process is left", within_s=120)
        eventually(
            lambda: not self._temporary_files(), what="no temporary file is left", within_s=120
        )

    def _environment(self) -> Mapping[str, str]:
        name, _, value = self._mark.partition("=")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
        kept.pop("PYTHONPATH", None)
        return {**kept, name: value, "TMPDIR": str(self.temporary)}

    def _pids(self) -> list[int]:
        mark = self._mark.encode()
        return [
            int(process.name)
            for process in Path("/proc").iterdir()
            if process.name.isdecimal() and mark in _environment_of(process)
        ]

    def _temporary_files(self) -> list[Path]:
        return sorted(self.temporary.glob("barnabas*"))


def _environment_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""  # it has ended, or is not ours
