"""A child process that a failing test ends instead of waiting for it without end."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import AnyStr


class Child(subprocess.Popen[AnyStr]):
    """As its parent, whose ``with`` waits for the process to end by itself, whatever happened.

    A test that failed before it had asked a server to stop once kept CI until its time was over.
    """

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self.poll() is None:
            self.kill()
        super().__exit__(kind, error, trace)
