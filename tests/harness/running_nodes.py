"""Servers that run for the length of a ``with``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.server_process import ServerProcess

START_S: Final = 240.0
"""On a machine full of other tests."""


@contextmanager
def running(*servers: ServerProcess) -> Iterator[None]:
    """Start them side by side, begin when all listen, and stop them in the end."""
    try:
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_until_listening(START_S)
        yield
    finally:
        for server in servers:
            server.stop()
