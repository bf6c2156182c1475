"""A partition's log written elsewhere, entry by entry: nobody sees it before it is complete.

Source: docs/spec/pipeline.md §4, job 6 (never writes in place); docs/spec/log.md §2.1.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from barnabas.protocol.log_files.checkpoints import LEADER_EPOCHS
from barnabas.protocol.records import batch
from barnabas.protocol.records.walk import OFFSETS_MAX

_BESIDE: Final = (LEADER_EPOCHS, "partition.metadata")
_BUFFER_BYTES: Final = 1 << 20


class LogCopy:
    """A directory that gets its name when it is complete.

    Segments, and what tells of the log beside them; a node makes indexes when it opens it.
    """

    def __init__(self, out: Path, directory: Path, segment_bytes: int) -> None:
        self._final = out / directory.name
        self._temporary = out / f".{directory.name}.{os.getpid()}"
        self._source = directory
        self._segment_bytes = segment_bytes
        self._pending = bytearray()
        self._base, self._size = -1, 0
        self.drop()
        self._temporary.mkdir(parents=True)

    def append(self, data: bytes | bytearray) -> None:
        """Append one entry, to another segment where this one has no room."""
        grown = self._size + len(data)
        is_far = batch.last_offset(data) - self._base > OFFSETS_MAX
        if self._base < 0 or is_far or (self._size and grown > self._segment_bytes):
            self._write()
            self._base, self._size = _first_offset(data), 0
        self._pending += data
        self._size += len(data)
        if len(self._pending) >= _BUFFER_BYTES:
            self._write()

    def finish(self) -> None:
        """Make all of it durable, under its name; raises OSError where that is taken."""
        self._write()
        for name in _BESIDE:
            with suppress(FileNotFoundError):
                shutil.copyfile(self._source / name, self._temporary / name)
        for path in [*self._temporary.iterdir(), self._temporary]:
            _sync(path)
        self._temporary.rename(self._final)
        _sync(self._final.parent)

    def drop(self) -> None:
        """Remove what was not finished."""
        shutil.rmtree(self._temporary, ignore_errors=True)

    def _write(self) -> None:
        if self._pending:
            with (self._temporary / f"{self._base:020}.log").open("ab") as file:
                file.write(self._pending)
            self._pending.clear()


def _first_offset(data: bytes | bytearray) -> int:
    """Also of a wrapper of magic 0 or 1, whose header has the last."""
    if batch.magic(data) == 2:
        return batch.base_offset(data)
    return next(iter(batch.records(data))).offset


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
