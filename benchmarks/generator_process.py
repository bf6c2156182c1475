"""A load generator as a child process: an order a line on its input, an answer a line back.

So what it costs is never counted as the server's, and it may have a core of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Self

from benchmarks.barnabas_node import ROOT
from benchmarks.server_process import ServerFailed, pin


class GeneratorProcess:
    """``python -m module arguments...``; use it in a ``with``. ``name`` is for errors."""

    def __init__(
        self,
        module: str,
        cores: set[int] | None,
        *arguments: str,
        name: str = "the load generator",
    ) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if cores:
            pin(self._process.pid, cores)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def order(self, order: dict[str, object]) -> dict[str, Any]:
        """Have something done, and return what came of it; raises ServerFailed when it ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ServerFailed(f"{self._name} ended; its traceback stands above")
        found: dict[str, Any] = json.loads(answer)
        return found
