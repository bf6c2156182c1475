"""The node's log on standard error, which holds nobody up.

Log lines are written on the event loop. A pipe that nobody empties (a pager, a log daemon that
stands still) would stop the node at the next line: what it does not take waits here, up to a bound,
for the next line. Source: pipe(7), a pipe that poll(2) calls writable takes PIPE_BUF bytes at once.
"""

from __future__ import annotations

import logging
import os
import select
import sys
from collections import deque
from typing import Final

WAITING_MAX: Final = 1 << 20
"""Bytes that wait; a line more is lost, and counted."""
STANDARD_ERROR: Final = 2


class UnblockedHandler(logging.Handler):
    """Writes lines to a descriptor as far as it takes them without a wait."""

    def __init__(self, descriptor: int = STANDARD_ERROR) -> None:
        super().__init__()
        self.lost = 0
        """Lines that were not written, since the last one that was."""
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        """Write what waits, then this line, or have it wait."""
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001 - what a caller passed, told in logging's own way
            self.handleError(record)
            return
        self.flush()
        if self._waiting_bytes + len(line) > WAITING_MAX:
            self.lost += 1
            return
        if self.lost:
            self._add(self._line(_about_lost(self.lost)))
            self.lost = 0
        self._add(line)
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as it is taken."""
        self.acquire()
        try:
            while self._waiting and self._poll.poll(0):
                first = self._waiting.popleft()
                try:
                    written = os.write(self._descriptor, first[: select.PIPE_BUF])
                except BlockingIOError:  # the descriptor's other users made it so
                    written = 0
                except OSError:  # nobody will ever read it
                    written = len(first)
                self._waiting_bytes -= min(written, len(first))
                if rest := first[written:]:
                    self._waiting.appendleft(rest)
                if not written:
                    return
        finally:
            self.release()

    def _add(self, line: bytes) -> None:
        self._waiting.append(line)
        self._waiting_bytes += len(line)

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")


def standard_error() -> logging.Handler:
    """The handler of a node's log; of a node that was started with it closed one that is silent.

    The descriptor may be a segment's then: the first file that is opened takes its number.
    """
    return UnblockedHandler() if sys.__stderr__ is not None else logging.NullHandler()


def _about_lost(count: int) -> logging.LogRecord:
    text = "standard error was not read lines_lost=%d"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (count,), None)
