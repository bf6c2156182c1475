"""Up to where each log is compacted: kept in memory, written to each directory.

Source: docs/spec/log.md §2.7 and §5.2; §9 pitfall P22.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from barnabas.broker.storage.checkpoints import BadCheckpoint, Offsets, read_offsets
from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_directory import LogDirectory

from .dirty_ratio import clamped

log = logging.getLogger(__name__)

CLEANED: Final = "cleaner-offset-checkpoint"


class LogRegistry(Protocol):
    """Who has the logs."""

    directories: list[LogDirectory]

    def logs_in(self, directory: LogDirectory) -> Sequence[Log]:
        """The logs of one directory."""

    def high_watermark(self, topic: str, partition: int) -> int:
        """As last written down."""

    def storage_failed(self, log: Log, error: StorageError) -> None:
        """The directory of a log cannot be trusted any more."""

    def directory_failed(self, directory: LogDirectory, error: StorageError) -> None:
        """It cannot be trusted any more."""


class CleanerCheckpoints:
    """The first dirty offset of every log that was ever compacted.

    It falls with the log, and goes with it: another log of that name begins anew.
    """

    def __init__(self, files: Files, keeper: LogRegistry) -> None:
        self._files = files
        self._keeper = keeper
        self._offsets: dict[Log, int] = {}
        self._by_directory: dict[Path, dict[Log, None]] = {}
        """The same logs, by where they are: what one file lists."""
        self._stale: set[Path] = set()
        """Directories whose file says more than is true by now."""
        self._fell = asyncio.Event()

    def load(self) -> None:
        """Read the files of all directories; one that cannot be read goes offline.

        To be called before logs have grown.
        """
        for directory in self._keeper.directories:
            if directory.is_online:
                try:
                    self._load(directory)
                except StorageError as error:
                    self._keeper.directory_failed(directory, error)

    def _load(self, directory: LogDirectory) -> None:
        path = directory.path / CLEANED
        try:
            found = read_offsets(self._files, path)
        except BadCheckpoint as bad:
            log.warning("ignored a bad checkpoint path=%s: %s", path, bad)
            return
        for partition_log in self._keeper.logs_in(directory):
            key = partition_log.topic, partition_log.partition
            if (listed := found.pop(key, None)) is None:
                continue
            # What is compacted was durable. Where less was at the start, the log had been cut and
            # has grown again: a recovery point falls before the cut, this file only behind it.
            offset = clamped(
                min(clamped(listed, partition_log), directory.listed_point(key)), partition_log
            )
            self._set(partition_log, offset)
            if offset < listed:
                self._note_fall(directory.path)
        if found:
            self._note_fall(directory.path)

    def first_dirty(self, of: Log) -> int:
        """Where compaction of a log goes on."""
        return clamped(self._offsets.get(of, of.start_offset), of)

    def _set(self, of: Log, offset: int) -> None:
        if of not in self._offsets:
            of.before_truncation.append(partial(self._cut, of))
            self._by_directory.setdefault(of.directory.parent, {})[of] = None
        self._offsets[of] = offset

    def _cut(self, of: Log, offset: int) -> None:
        """The log is cut at ``offset``, -1 for deleted: what comes there was never compacted."""
        known = self._offsets.get(of, -1)
        if offset < 0:
            self._offsets.pop(of, None)
            self._by_directory[of.directory.parent].pop(of, None)
        elif known > offset:
            view = of.segments.view
            self._offsets[of] = view.bases[max(0, view.floor(offset))]
        if known > offset:
            self._note_fall(of.directory.parent)

    def _note_fall(self, path: Path) -> None:
        self._stale.add(path)
        self._fell.set()

    async def keep(self) -> None:
        """Write down at once that a log was cut or deleted, until cancelled."""
        while True:
            await self._fell.wait()
            await self.save()

    async def save(self) -> None:
        """Let no file say more than is true."""
        self._fell.clear()
        stale, self._stale = self._stale, set()
        for directory in self._keeper.directories:
            if directory.path in stale and directory.is_online:
                try:
                    await directory.replace(CLEANED, self._in(directory))
                except StorageError as error:
                    if error.is_busy:
                        self._stale.add(directory.path)
                    else:
                        self._keeper.directory_failed(directory, error)

    async def advance(self, of: Log, offset: int) -> None:
        """Everything below ``offset`` is compacted; written down. Raises StorageError."""
        self._set(of, offset)
        for directory in self._keeper.directories:
            if directory.path == of.directory.parent and directory.is_online:
                await directory.write(CLEANED, self._in(directory))

    def _in(self, directory: LogDirectory) -> Offsets:
        return {
            (partition_log.topic, partition_log.partition): self._offsets[partition_log]
            for partition_log in self._by_directory.get(directory.path, ())
        }
