"""The file of the audit log: appended by a thread, so that a slow disk delays no request.

Files that are full are renamed to ``PATH.1``, ``PATH.2`` and so on. What cannot be written, because
the disk is full or the thread is far behind, is counted, and said in the node's own log.
Source: docs/spec/security.md §8 (S76).
"""

from __future__ import annotations

import io
import logging
import os
import queue
import time
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import Any, Final

from .audit_log import log as audit

log = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
"""Lines that wait for the disk; one more is lost."""
COMPLAIN_S: Final = 60.0
"""Between two lines about lines that were lost."""
_MODE: Final = 0o600


class _PrivateFile(RotatingFileHandler):
    """Nobody but the node's user reads who logs in from where."""

    def __init__(self, owner: AuditFile, path: Path, bytes_max: int, backups: int) -> None:
        self._owner = owner
        super().__init__(path, maxBytes=bytes_max, backupCount=backups, encoding="utf-8")

    def _open(self) -> io.TextIOWrapper:
        file = io.FileIO(self.baseFilename, self.mode, opener=_opener)
        return io.TextIOWrapper(io.BufferedWriter(file), self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - overrides
        """A disk that is full must not end the thread, nor fill standard error."""
        self._owner.lose()


class _Waiting(QueueHandler):
    """Hands lines to the thread."""

    def __init__(self, owner: AuditFile, lines: queue.Queue[Any]) -> None:
        super().__init__(lines)
        self._owner = owner

    def enqueue(self, record: logging.LogRecord) -> None:
        """Never wait for the disk."""
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self._owner.lose()


class AuditFile:
    """Takes the lines of the logger ``barnabas.audit``, which the node's log has no more.

    Raises OSError, with the path, when the file cannot be opened.
    """

    def __init__(self, path: Path, *, bytes_max: int, backups: int) -> None:
        self.lost = 0
        """Lines that are not in the file."""
        self._complained_at = -COMPLAIN_S
        file = _PrivateFile(self, path, bytes_max, backups)
        file.setFormatter(logging.Formatter("%(message)s"))
        lines: queue.Queue[Any] = queue.Queue(WAITING_MAX)
        self._handler = _Waiting(self, lines)
        self._file = file
        self._writer = QueueListener(lines, file)
        self._writer.start()
        audit.addHandler(self._handler)
        audit.propagate = False

    def lose(self) -> None:
        """One line could not be written."""
        self.lost += 1
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_S:
            self._complained_at = now
            log.error("could not write the audit log lost=%d", self.lost)

    def close(self) -> None:
        """Write what waits; lines go to the node's log again."""
        audit.removeHandler(self._handler)
        audit.propagate = True
        self._writer.stop()
        try:
            self._file.close()
        except OSError:  # what the disk did not take is counted: the node ends all the same
            self.lose()


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags, _MODE)
