"""How many segments have their file open: above a bound those that were opened first close it.

A process has room for so many descriptors, and connections need them too. A segment whose last
bytes were not fsynced keeps its descriptor, for the kernel tells of a failed write only to those
that were there. Source: docs/spec/log.md §4.2 (use counts).
"""

from __future__ import annotations

import resource
from typing import Final, Protocol

SHARE: Final = 2
"""One descriptor of so many is for segments."""
_TRIES: Final = 8


class Closable(Protocol):
    """Who has a file open."""

    def close_if_idle(self) -> bool:
        """Close the file unless somebody uses it or its content may not be safe yet."""


class OpenFiles:
    """Who has a file open, oldest first. Not thread-safe: whoever calls holds a lock."""

    def __init__(self, most: int) -> None:
        assert most > 0
        self.most = most
        self._open: dict[Closable, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, one: Closable) -> None:
        """``one`` opened its file: another one may have to close it."""
        self._open[one] = None
        tries = 0
        while len(self._open) > self.most and tries < _TRIES:
            oldest = next(iter(self._open))
            del self._open[oldest]
            if oldest is one or not oldest.close_if_idle():
                self._open[oldest] = None
            tries += 1

    def closed(self, one: Closable) -> None:
        """``one`` closed its file by itself; harmless when it was not open."""
        self._open.pop(one, None)


def bound() -> int:
    """How many descriptors this process may spend on segments."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, soft // SHARE) if soft != resource.RLIM_INFINITY else 1 << 20


open_files: Final = OpenFiles(bound())
"""The segments of this process that have their file open."""


def raise_limit() -> None:
    """Take as many descriptors as the system grants, as a JVM does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    open_files.most = bound()
