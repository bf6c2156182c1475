"""A segment under way: written as ``.cleaned`` files that nobody reads before they are complete.

Source: docs/spec/log.md §3.5 step 1, §5.4; §9 pitfalls P8 and P20.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.storage.files import Files
from barnabas.protocol.records import batch

from .batch_headers import BatchHeader
from .segment import stem
from .segment_indexes import OFFSETS_MAX, SegmentIndexes
from .transaction_index import AbortedTransaction, format_aborted

CLEANED: Final = ".cleaned"
_BUFFER_BYTES: Final = 1 << 18
_SYNC_BYTES: Final = 16 << 20
"""So much is made durable at a time: the disk is never flooded at the end of a segment."""


class CleanedSegment:
    """One output file with its indexes; :meth:`finish` makes it complete and durable."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        buffer_bytes: int = _BUFFER_BYTES,
    ) -> None:
        """``config`` bounds the segment and its indexes."""
        self.base_offset = base_offset
        self.size = 0
        self._files = files
        self._directory = directory
        self._segment_bytes = config.segment_bytes
        self._buffer_bytes = buffer_bytes
        self._pending = bytearray()
        self._unsynced = 0
        self._aborted: list[AbortedTransaction] = []
        self._indexes = SegmentIndexes(
            files, directory / stem(base_offset), base_offset, _never, is_empty=True
        )
        self._indexes.configure(config)
        files.unlink(self._path(".log"))
        self._file = files.open_append(self._path(".log"))

    def _path(self, suffix: str) -> Path:
        return self._directory / (stem(self.base_offset) + suffix + CLEANED)

    def takes(self, size: int, last_offset: int) -> bool:
        """Whether a batch like this one still fits; one alone always does."""
        return not self.size or (
            self.size + size <= self._segment_bytes
            and last_offset - self.base_offset <= OFFSETS_MAX
            and not self._indexes.is_full
        )

    def append(self, data: bytes | bytearray, entry: BatchHeader) -> None:
        """Write one batch, ``entry`` being its header."""
        assert entry.base_offset >= self.base_offset
        self._indexes.note(self.size, len(data), entry.last_offset, entry.max_timestamp)
        self.size += len(data)
        self._pending += data
        if len(self._pending) >= self._buffer_bytes:
            self._write()

    def append_rest(self, data: bytes) -> None:
        """Write bytes that are no whole batch: whoever opens the segment will judge them."""
        self.size += len(data)
        self._pending += data

    def note_aborted(self, transaction: AbortedTransaction) -> None:
        """The marker just appended ended this transaction."""
        self._aborted.append(transaction)

    def _write(self) -> None:
        if self._pending:
            self._file.append(self._pending)
            self._unsynced += len(self._pending)
            self._pending = bytearray()
            if self._unsynced >= _SYNC_BYTES:
                self._file.sync_now()
                self._unsynced = 0

    def finish(self) -> None:
        """Write what is pending and the indexes; fsync all."""
        self._write()
        self._file.sync_now()
        self._file.close()
        self._indexes.finish()
        self._save(".index", self._indexes.offsets.to_bytes())
        self._save(".timeindex", self._indexes.times.to_bytes())
        if self._aborted:
            self._save(".txnindex", format_aborted(self._aborted))

    def _save(self, suffix: str, data: bytes) -> None:
        self._files.unlink(self._path(suffix))
        file = self._files.open_append(self._path(suffix))
        try:
            if data:
                file.append(data)
            file.sync_now()
        finally:
            file.close()

    def date(self, modified_ms: int) -> None:
        """Let the file seem to be from then: retention may go by that."""
        self._files.set_modified_ms(self._path(".log"), modified_ms)

    def close(self) -> None:
        """Let the file go, complete or not."""
        self._file.close()


def _never() -> None:
    raise AssertionError("indexes of a segment under way are in memory")


def first_offset(data: bytes | bytearray) -> int:
    """The first offset an entry holds, also of a wrapper, whose header has the last."""
    if batch.magic(data) == 2:
        return batch.base_offset(data)
    return next(iter(batch.records(data))).offset


def remove_cleaned(files: Files, directory: Path) -> None:
    """Remove what a pass that did not end left behind."""
    for name in files.list_directory(directory):
        if name.endswith(CLEANED):
            files.unlink(directory / name)
