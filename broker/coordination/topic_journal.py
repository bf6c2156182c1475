"""What a node tells in an internal topic without ever waiting for it: bounded, losses counted.

Cluster events and changes of administrators are noted in the turn in which they happen and written
by a task of their own. While the topic cannot be written they wait, BYTES_MAX of them; what comes
then is lost, and counted. Source: docs/spec/console.md §2.2 (E, A).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

log = logging.getLogger(__name__)

BYTES_MAX: Final = 8 << 20
"""So much waits, ENTRY_BYTES of each record included."""
ENTRY_BYTES: Final = 200
"""What a record takes besides its key and value."""
BATCH_MAX: Final = 500
"""Records written at once."""
GATHER_S: Final = 0.05
"""What comes within this time is written together."""
RETRY_FIRST_S: Final = 0.2
RETRY_MOST_S: Final = 10.0
_DOUBLINGS: Final = 6
DRAIN_S: Final = 1.0
"""How long a stop in order waits for what is not written yet."""

Entry = tuple[bytes, bytes | None]


class Writer(Protocol):
    """Appends to a topic, wherever its partitions are led."""

    async def write(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Append; gives back those that must be tried again."""


class TopicJournal:
    """Records of one topic on their way; ``name`` is what the log calls them."""

    def __init__(self, writer: Writer, name: str) -> None:
        self._writer = writer
        self._name = name
        self._waiting: deque[Entry] = deque()
        self._bytes = 0
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._lost_logged = 0
        self.written = 0
        """Records that are in the topic, and those that found no room, since the start."""
        self.lost = 0

    @property
    def waiting(self) -> int:
        """Records that are not written yet."""
        return len(self._waiting)

    def add(self, key: bytes, value: bytes) -> None:
        """Have a record written soon; never waits, never raises."""
        size = len(key) + len(value) + ENTRY_BYTES
        if self._bytes + size > BYTES_MAX:
            self.lost += 1
            return
        self._waiting.append((key, value))
        self._bytes += size
        self._woken.set()
        self._idle.clear()

    async def run(self) -> None:
        """Write what is noted, until cancelled."""
        failures = 0
        while True:
            await self._woken.wait()
            await asyncio.sleep(GATHER_S)
            failures = 0 if await self._write_some() else failures + 1
            self._log_lost()
            if failures:
                doublings = min(failures - 1, _DOUBLINGS)
                await asyncio.sleep(min(RETRY_MOST_S, RETRY_FIRST_S * 2**doublings))

    async def drain(self) -> None:
        """Wait until everything is written, or for DRAIN_S; :meth:`run` does it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._idle.wait()
        if self._waiting:
            log.warning("stopped with records to write of=%s records=%d", self._name, self.waiting)

    async def _write_some(self) -> bool:
        """Write the oldest; False when none of them could be. They keep their order."""
        taken = [self._waiting.popleft() for _ in range(min(BATCH_MAX, len(self._waiting)))]
        left: Sequence[Entry] = taken
        try:
            left = await self._writer.write(taken)
        finally:
            kept = {id(entry) for entry in left}
            for key, value in (entry for entry in taken if id(entry) not in kept):
                self._bytes -= len(key) + len(value or b"") + ENTRY_BYTES
                self.written += 1
            self._waiting.extendleft(entry for entry in reversed(taken) if id(entry) in kept)
        if not self._waiting:
            self._woken.clear()
            self._idle.set()
        return len(left) < len(taken)

    def _log_lost(self) -> None:
        lost, self._lost_logged = self.lost - self._lost_logged, self.lost
        if lost:
            log.warning("lost records, too many at once of=%s records=%d", self._name, lost)
