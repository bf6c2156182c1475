"""The barnabas command as somebody types it, with bytes in and bytes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from barnabas.console.__main__ import main

from .deployments import Deployment

PATIENT_MS = "60000"


class Command:
    """Runs commands in this process against one cluster."""

    def __init__(
        self,
        cluster: Deployment,
        capsysbinary: pytest.CaptureFixture[bytes],
        monkeypatch: pytest.MonkeyPatch,
        directory: Path,
    ) -> None:
        self.told = ""
        """What the last command said on standard error."""
        self._cluster = cluster
        self._captured = capsysbinary
        self._monkeypatch = monkeypatch
        self._input = directory / "input"

    def __call__(self, *words: str, given: bytes = b"", code: int = 0) -> bytes:
        """What a command prints; fails unless it ends with ``code``."""
        self._input.write_bytes(given)
        self._captured.readouterr()
        with self._input.open() as stdin, self._monkeypatch.context() as patch:
            patch.setattr("sys.stdin", stdin)
            options = ["--bootstrap", self._cluster.bootstrap, "--timeout-ms", PATIENT_MS]
            verb, *rest = words
            ended = main([verb, *rest, *options])
        shown = self._captured.readouterr()
        self.told = shown.err.decode()
        assert ended == code, f"exit code {ended}\n{shown.out!r}\n{self.told}"
        return shown.out

    def json(self, *words: str, code: int = 0) -> Any:
        """The document that a command prints with ``--json``."""
        return json.loads(self(*words, "--json", code=code))

    def json_lines(self, *words: str, given: bytes = b"", code: int = 0) -> list[Any]:
        """One document a line."""
        shown = self(*words, "--json", given=given, code=code)
        return [json.loads(line) for line in shown.splitlines()]


@pytest.fixture
def command(
    cluster: Deployment,
    capsysbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Command:
    """The command, for the cluster of all tests that do no harm."""
    return Command(cluster, capsysbinary, monkeypatch, tmp_path)
