"""Putting compacted segments in the place of those they were made from, whatever happens.

    .cleaned   written and fsynced by who compacted; removed by a start
    .swap      all of a run are complete: a start puts them in place
    (final)    the old files are .deleted by then

Until the old segments are renamed everything can be taken back, and is where the disk refuses; from
then on only a start that finds the .swap files, or the end of :func:`publish`, puts the log right.
Source: docs/spec/log.md §3.5, steps 2 to 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas.broker.storage.cooperative import uninterrupted
from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.segment.cleaned_segment import CLEANED
from barnabas.broker.storage.segment.segment import SUFFIXES, SWAP, Segment, stem


class SegmentSwap:
    """One run of segments on its way into a log; all methods run on the loop."""

    def __init__(
        self, files: Files, log: Log, old: Sequence[Segment], new: Sequence[tuple[int, int]]
    ) -> None:
        self._files = files
        self._log = log
        self._old = old
        self._new = new
        self._is_taken_back = False
        self._is_replacing = False

    async def publish(self, may: Callable[[], bool], now_ms: int) -> bool:
        """Let the new segments take the place of the old ones.

        False when the log is not what it was, or ``may`` says no: then nothing has changed but
        that the new files are gone. Raises StorageError and Refused(56).
        """
        if not (may() and self._log.segments.holds(self._old)):
            self._remove(CLEANED)
            return False
        try:
            return await self._swap(may, now_ms)
        except BaseException as failure:
            if not self._is_replacing:
                self._undo(failure)
            raise

    async def _swap(self, may: Callable[[], bool], now_ms: int) -> bool:
        log = self._log
        # From the last one on: a start that finds a `.cleaned` removes the swaps at and above it,
        # so that a kill between two renames leaves none of the run.
        self._rename(CLEANED, SWAP, sorted(self._new, reverse=True))
        self._check()
        # Only now, so that no power cut can take the new names and leave the deletions.
        await uninterrupted(self._files.off_loop(lambda: self._files.sync_directory(log.directory)))
        async with (
            log.flusher.flush_lock
        ):  # nobody writes an index by its name while that changes hands
            # While the names were fsynced the log may have been cut: the old segments are the
            # truth.
            if self._is_taken_back or not (may() and log.segments.holds(self._old)):
                self.take_back()
                self._remove(CLEANED)
                return False
            self._is_replacing = True
            log.replace_segments(
                [self._segment(*bounds, now_ms) for bounds in self._new], self._old
            )
        await uninterrupted(self._files.off_loop(lambda: self._files.sync_directory(log.directory)))
        return True

    def take_back(self) -> None:
        """The log is about to change below: no start may put the new segments in place."""
        if not self._is_taken_back:
            self._is_taken_back = True
            self._rename(SWAP, CLEANED, sorted(self._new))

    def _undo(self, failure: BaseException) -> None:
        """Leave no trace of a swap that failed, so that the compaction can be tried again.

        A ``.swap`` file that stayed would be put in place by some later start, over newer segments.
        Raises StorageError, which does not heal, where that cannot be prevented.
        """
        try:
            self._rename(SWAP, CLEANED, sorted(self._new))
            self._remove(CLEANED)
        except StorageError as error:
            path = self._log.directory
            raise StorageError(path, f"could not take back a swap: {error}") from failure
        self._log.names_changed()

    def _segment(self, base_offset: int, size: int, now_ms: int) -> Segment:
        return Segment(self._files, self._log.directory, base_offset, size=size, created_ms=now_ms)

    def _check(self) -> None:
        """What is to replace the log must be there; raises StorageError."""
        for base_offset, size in self._new:
            path = self._path(base_offset, ".log" + SWAP)
            found = self._files.size(path)
            if found != size:
                raise StorageError(path, f"has {found} bytes instead of {size}")

    def _rename(self, source: str, target: str, new: Sequence[tuple[int, int]]) -> None:
        for base_offset, _ in new:
            for suffix in SUFFIXES:
                path = self._path(base_offset, suffix + source)
                if self._files.exists(path):
                    self._files.rename(path, self._path(base_offset, suffix + target))

    def _remove(self, end: str) -> None:
        for base_offset, _ in self._new:
            for suffix in SUFFIXES:
                self._files.unlink(self._path(base_offset, suffix + end))

    def _path(self, base_offset: int, suffix: str) -> Path:
        return self._log.directory / (stem(base_offset) + suffix)
