"""Up to where each log is compacted: kept in memory, written to each directory.

Source: log.md sections 2.7 and 5.2; pitfall P22.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from .checkpoints import BadCheckpoint, Offsets, read_offsets
from .cleanable import clamped
from .files import Files, StorageError
from .log import Log
from .log_directory import LogDirectory
from .stored_log import StoredLog

log = logging.getLogger(__name__)

CLEANED: Final = "cleaner-offset-checkpoint"


class LogKeeper(Protocol):
    """Who has the logs."""

    directories: list[LogDirectory]

    def logs_in(self, directory: LogDirectory) -> Sequence[Log]:
        """The logs of one directory."""

    def high_watermark(self, topic: str, partition: int) -> int:
        """As last written down."""

    def storage_failed(self, log: StoredLog, error: StorageError) -> None:
        """The directory of a log cannot be trusted any more."""


class CleanerCheckpoints:
    """The first dirty offset of every log that was ever compacted."""

    def __init__(self, files: Files, keeper: LogKeeper) -> None:
        self._files = files
        self._keeper = keeper
        self._offsets: dict[tuple[str, int], int] = {}

    def load(self) -> None:
        """Read the files of all directories. Raises StorageError."""
        for directory in self._keeper.directories:
            if not directory.is_online:
                continue
            path = directory.path / CLEANED
            try:
                here = {(each.topic, each.partition) for each in self._keeper.logs_in(directory)}
                found = read_offsets(self._files, path)
                self._offsets.update({key: found[key] for key in found if key in here})
            except BadCheckpoint as bad:
                log.warning("ignored a bad checkpoint path=%s: %s", path, bad)

    def first_dirty(self, of: Log) -> int:
        """Where compaction of a log goes on."""
        return clamped(self._offsets.get((of.topic, of.partition), of.start_offset), of)

    def lower(self, of: Log, offset: int) -> None:
        """The log is cut at ``offset``: what comes there was never compacted."""
        key = (of.topic, of.partition)
        known = self._offsets.get(key, 0)
        if known > offset:
            view = of.segments.view
            self._offsets[key] = view.bases[max(0, view.floor(offset))]

    async def advance(self, of: Log, offset: int) -> None:
        """Everything below ``offset`` is compacted; written down. Raises StorageError."""
        self._offsets[of.topic, of.partition] = offset
        for directory in self._keeper.directories:
            if directory.path == of.directory.parent and directory.is_online:
                await directory.write(CLEANED, self._in(directory))

    def _in(self, directory: LogDirectory) -> Offsets:
        here = {(each.topic, each.partition) for each in self._keeper.logs_in(directory)}
        return {key: offset for key, offset in self._offsets.items() if key in here}

    def forget_all_but(self, kept: set[tuple[str, int]]) -> None:
        """Logs that are gone need none."""
        self._offsets = {key: self._offsets[key] for key in self._offsets if key in kept}
