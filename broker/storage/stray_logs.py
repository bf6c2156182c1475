"""Logs that were set aside: which there are, and which one of them a partition gets back.

They lie beside the others as `<topic>-<partition>.<32 hex digits>-stray` and are not opened. The
name may hold only the beginning of a long topic's; the topic's id in the directory decides.
Source: docs/decisions/0011.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from barnabas.broker.storage.recovery.crash_leftovers import base_offset_of

from .checkpoints import BadCheckpoint
from .files import Files, StorageError
from .leader_epochs import FILE_NAME, LeaderEpochs
from .partition_directory import stem_of_stray, stray_stem
from .partition_metadata import read_topic_id


class StrayLogs:
    """The directories of one node that were set aside."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._by_stem: dict[str, set[Path]] = defaultdict(set)

    def add(self, path: Path) -> None:
        """One was found, or made."""
        self._by_stem[stem_of_stray(path.name)].add(path)

    def discard(self, path: Path) -> None:
        """One has another name now, or is on a disk that failed."""
        self._by_stem[stem_of_stray(path.name)].discard(path)

    def find(self, topic: str, partition: int, topic_id: bytes) -> Path | None:
        """The newest one of that partition of that very topic; None when there is none.

        Those that somebody deleted meanwhile are forgotten. Raises StorageError.
        """
        stem = stray_stem(topic, partition)
        there = {path for path in self._by_stem.pop(stem, ()) if self._files.is_directory(path)}
        if there:
            self._by_stem[stem] = there
        fitting = [path for path in there if read_topic_id(self._files, path) == topic_id]
        return max(fitting, key=self._age, default=None)

    def _age(self, path: Path) -> tuple[int, int, str]:
        """Compares two logs of one partition: the newest leader epoch, then the last segment."""
        try:
            epochs = LeaderEpochs.from_text(self._files.read_whole(path / FILE_NAME).decode())
            latest = epochs.latest
        except (StorageError, BadCheckpoint, UnicodeDecodeError):
            latest = -1
        names = self._files.list_directory(path)
        bases = [base_offset_of(name) for name in names if name.endswith(".log")]
        return latest, max((base for base in bases if base is not None), default=-1), path.name
