"""One entry of log.dirs: its lock, its clean-shutdown marker, its checkpoints.

Source: docs/spec/log.md §2.1, §2.7 and §3.2; §9 pitfall P6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    BadCheckpoint,
    Offsets,
    format_offsets,
    read_offsets,
)
from .cooperative import uninterrupted
from .files import Files, Lock, StorageError

log = logging.getLogger(__name__)

MARKER: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"
_MARKER_TEXT: Final = b'{"version":0,"brokerEpoch":-1}'


class LogDirectory:
    """A directory that holds logs; locked from :meth:`open` to :meth:`close`."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self.path = path
        self.is_online = False
        self.was_clean = False
        """The last process stopped in order, so nothing needs to be verified."""
        self.is_loaded = False
        """Every log in it was loaded: it may be marked clean at the end."""
        self.recovery_points: Offsets = {}
        self.log_starts: Offsets = {}
        self.high_watermarks: Offsets = {}
        """What the checkpoints said at the start."""
        self._points: Offsets = {}
        """The greatest that a start may find,"""
        self._certain_points: Offsets = {}
        """and those that it finds, as written by this process; none while that is not known."""
        self._lock: Lock | None = None
        self._written: dict[str, bytes] = {}
        self._writing = asyncio.Lock()

    def open(self) -> None:
        """Lock it, take the marker away and read the checkpoints. Raises StorageError."""
        self._files.make_directory(self.path)
        self._lock = self._files.lock(self.path / LOCK)
        self.is_online = True
        marker = self.path / MARKER
        self.was_clean = self._files.exists(marker)
        if self.was_clean:
            # Before anything is loaded, and for good: a crash from here on is a crash.
            self._files.unlink(marker)
            self._files.sync_directory(self.path)
        self.recovery_points = self._points = self._read(RECOVERY_POINTS)
        self.log_starts = self._read(LOG_STARTS)
        self.high_watermarks = self._read(HIGH_WATERMARKS)

    def _read(self, name: str) -> Offsets:
        try:
            return read_offsets(self._files, self.path / name)
        except BadCheckpoint as bad:
            log.warning("ignored a bad checkpoint path=%s: %s", self.path / name, bad)
            return {}

    async def write(self, name: str, offsets: Offsets) -> None:
        """Replace the checkpoint ``name`` unless it says that already. Raises StorageError."""
        data = format_offsets(dict(sorted(offsets.items())))
        async with self._writing:
            if self._written.get(name) == data:
                return
            path = self.path / name
            if name == RECOVERY_POINTS:
                now = self._points
                either = {**now, **offsets}
                self._points = {key: max(now.get(key, 0), offsets.get(key, 0)) for key in either}
                self._certain_points = {}
            await uninterrupted(
                self._files.off_loop(lambda: self._files.write_atomically(path, data))
            )
            self._written[name] = data
            if name == RECOVERY_POINTS:
                self._points = self._certain_points = offsets

    async def replace(self, name: str, offsets: Offsets) -> None:
        """As :meth:`write`; on a full disk the old checkpoint is removed. Raises StorageError."""
        try:
            await self.write(name, offsets)
        except StorageError as error:
            if not error.is_full:
                raise
            log.warning("removed an old checkpoint, the disk is full: %s", error)
            async with self._writing:
                self._written.pop(name, None)
                await uninterrupted(self._files.off_loop(lambda: self._remove(name)))
                if name == RECOVERY_POINTS:
                    self._points = {}

    def _remove(self, name: str) -> None:
        self._files.unlink(self.path / name)
        self._files.sync_directory(self.path)

    def listed_point(self, key: tuple[str, int]) -> int:
        """The greatest recovery point of a log that a start may find, now or in a moment."""
        return self._points.get(key, 0)

    async def reach_point(
        self, key: tuple[str, int], least: int, points: Callable[[], Offsets]
    ) -> None:
        """Have the recovery point of a log on disk at or above ``least``. Raises StorageError.

        ``points()`` are those of all logs here, written down unless the file says enough already.
        """
        # One at a time, in the order of asking: what was to be written before this is on the disk
        # by then, and what comes later says what is true now.
        async with self._writing:
            if self._certain_points.get(key, 0) >= least:
                return
        await self.write(RECOVERY_POINTS, points())

    async def mark_clean(self) -> None:
        """Say that everything in it is complete and durable. Raises StorageError."""
        assert self.is_loaded
        path = self.path / MARKER
        await uninterrupted(
            self._files.off_loop(lambda: self._files.write_atomically(path, _MARKER_TEXT))
        )

    def take_offline(self, error: StorageError) -> None:
        """Use it no more; the lock stays, so that nobody else does."""
        self.is_online = self.is_loaded = False
        log.error("took a log directory offline path=%s: %s", self.path, error)

    def close(self) -> None:
        """Give the lock back; harmless when done twice."""
        self.is_online = False
        if self._lock is not None:
            self._lock.release()
            self._lock = None
