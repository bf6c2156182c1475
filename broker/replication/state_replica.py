"""One replica of a state topic's partition, as standby, loader and snapshots see it.

Source: coordinator/ports.py; docs/spec/coordinator.md §3.4 to §3.4.2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from barnabas.broker.storage.checkpoints import BadCheckpoint, read_offsets
from barnabas.broker.storage.compaction.cleaner_checkpoints import CLEANED
from barnabas.broker.storage.files import File, Files, StorageError
from barnabas.broker.storage.recovery.damage import damage_at, is_damaged, suspect
from barnabas.coordinator.damaged_records import Damage
from barnabas.coordinator.ports import SNAPSHOT, FollowerListener
from barnabas.protocol.errors import ErrorCode, Refused

from .partition import Partition

log = logging.getLogger(__name__)

_UNKNOWN: Final = 1 << 63
"""Above every offset."""


class StateReplica:
    """Implements coordinator.ports.Replica; lives as long as the partition that it is of."""

    def __init__(self, partition: Partition, files: Files) -> None:
        self._partition = partition
        self._files = files
        self._watcher: FollowerListener | None = None

    @property
    def is_followed(self) -> bool:
        """Whether it is not led here."""
        return not self._partition.is_leader

    @property
    def segment_base(self) -> int:
        """The base offset of the active segment."""
        return self._partition.log.segments.active.base_offset

    def bounds(self) -> tuple[int, int, int]:
        """Log start offset, high watermark, log end offset."""
        own = self._partition.log
        return own.start_offset, self._partition.high_watermark, own.end_offset

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches up to the log's end, whoever leads. Raises Refused."""
        own = self._partition.log
        return own.read(offset, bytes_max=bytes_max, end=own.end_offset, at_least_one=True)

    def damage_at(self, offset: int) -> Damage | None:
        """The damage that holds ``offset``; None while another replica in sync may have that."""
        if len(self._partition.isr) > 1:
            return None
        found = damage_at(self._partition.log, offset)
        return None if found is None else Damage(offset, found[0].next_offset, found[1])

    @property
    def is_damaged(self) -> bool:
        """Whether some of it cannot be read."""
        return is_damaged(self._partition.log)

    def suspect(self, offset: int) -> None:
        """The batch that holds ``offset`` has a wrong checksum."""
        suspect(self._partition.log, offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of a record; -1 when not known."""
        return self._partition.log.epochs.at(offset)

    def cleaned_offset(self) -> int:
        """As the cleaner wrote it down; beyond every offset when that cannot be read."""
        own = self._partition.log
        try:
            found = read_offsets(self._files, own.directory.parent / CLEANED)
        except (BadCheckpoint, StorageError):
            return _UNKNOWN
        return found.get((own.topic, own.partition), 0)

    # --- what a follower does -------------------------------------------------------------------

    def watch(self, watcher: FollowerListener | None) -> None:
        """Tell ``watcher`` what is appended and cut from now on; None for nobody."""
        cuts = self._partition.log.before_truncation
        if self._cut in cuts:
            cuts.remove(self._cut)
        self._watcher = watcher
        if watcher is not None:
            cuts.append(self._cut)

    def followed(self, before: int, data: bytes) -> None:
        """``data`` was appended where the log ended ``before``, the high watermark brought up."""
        if self._watcher is not None:
            self._watcher.appended(before, data)

    def _cut(self, offset: int) -> None:
        if self._watcher is not None:
            self._watcher.cut(offset)

    # --- snapshots --------------------------------------------------------------------------------

    def _path(self, name: str) -> Path:
        return self._partition.log.directory / name

    def snapshot(self, name: str = SNAPSHOT) -> SnapshotFile | None:
        """The snapshot, open; None when there is none that can be read."""
        try:
            return SnapshotFile(self._files.open_existing(self._path(name)))
        except StorageError as error:
            if not error.is_missing:
                log.warning("could not open a snapshot of offsets: %s", error)
            return None

    async def write_snapshot(self, make: Callable[[], bytes], name: str = SNAPSHOT) -> None:
        """Replace it, durably, in a thread. A full disk keeps the old one."""
        path, own = self._path(name), self._partition.log
        try:
            await self._files.off_loop(lambda: self._files.write_atomically(path, make()))
        except StorageError as error:
            if error.may_heal:
                log.warning("wrote no snapshot of offsets: %s", error)
            elif not own.is_offline:
                own.note_failure(error)

    def drop_snapshot(self, name: str = SNAPSHOT) -> None:
        """Delete it; should a power cut bring it back, it is judged again."""
        try:
            self._files.unlink(self._path(name))
        except StorageError as error:
            log.warning("could not delete a snapshot of offsets: %s", error)


class SnapshotFile:
    """Implements coordinator.ports.SnapshotFile."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.size = file.size

    def read(self, position: int, count: int) -> bytes:
        """Read; raises Refused where the disk does not let us."""
        try:
            return self._file.read(position, count)
        except StorageError as error:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
