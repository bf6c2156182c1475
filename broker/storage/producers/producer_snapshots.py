"""Snapshots of the producers of a partition, so that a start need not read the whole log.

``<offset>.snapshot`` covers the log up to that offset, which it does not include; its bytes are
drawn in protocol/log_files/producer_snapshot.py. Only the last batch of a producer is kept.
Source: docs/spec/log.md §2.6 and §7.4; §9 pitfalls P12, P15 and P16.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.segment.segment import stem
from barnabas.protocol.log_files.producer_snapshot import (
    BadSnapshot,
    StoredProducer,
    format_producers,
    parse_producers,
)

from .producer_state import BatchMetadata, ProducerStateEntry, ProducerStateManager

__all__ = [
    "SUFFIX",
    "BadSnapshot",
    "ProducerSnapshots",
    "format_snapshot",
    "parse_snapshot",
    "sync_snapshot",
]

log = logging.getLogger(__name__)

SUFFIX: Final = ".snapshot"
_NO_BATCH: Final = (-1, -1, 0)


def format_snapshot(producers: Iterable[tuple[int, ProducerStateEntry]]) -> bytes:
    """The bytes of a snapshot file."""
    return format_producers(_stored(*producer) for producer in producers)


def _stored(producer_id: int, producer: ProducerStateEntry) -> StoredProducer:
    last = _NO_BATCH
    if producer.batches:
        newest = producer.batches[-1]
        last = newest.last_sequence, newest.last_offset, newest.offset_delta
    return StoredProducer(
        producer_id,
        producer.epoch,
        *last,
        producer.timestamp,
        producer.coordinator_epoch,
        producer.transaction_start,
    )


def parse_snapshot(data: bytes) -> dict[int, ProducerStateEntry]:
    """The producers in a snapshot file; raises BadSnapshot."""
    return {stored.producer_id: _producer(stored) for stored in parse_producers(data)}


def _producer(stored: StoredProducer) -> ProducerStateEntry:
    producer = ProducerStateEntry(
        stored.epoch, stored.coordinator_epoch, stored.timestamp, stored.transaction_start
    )
    if stored.last_offset >= 0:
        sequences = stored.first_sequence, stored.last_sequence
        producer.batches.append(
            BatchMetadata(*sequences, stored.last_offset, stored.offset_delta, stored.timestamp)
        )
    return producer


class ProducerSnapshots:
    """The snapshot files of one partition's directory."""

    __slots__ = ("_directory", "_files", "_offsets", "_unsynced")

    def __init__(self, files: Files, directory: Path, offsets: Iterable[int] = ()) -> None:
        self._files = files
        self._directory = directory
        self._offsets = sorted(offsets)
        self._unsynced: list[Path] = []

    @property
    def offsets(self) -> tuple[int, ...]:
        """Up to where each snapshot reaches, ascending."""
        return tuple(self._offsets)

    def path(self, offset: int) -> Path:
        """The file of the snapshot up to ``offset``."""
        return self._directory / (stem(offset) + SUFFIX)

    def take(self, producers: ProducerStateManager, offset: int) -> None:
        """Write down what is known up to ``offset``, unless that was done.

        The file is not fsynced: hand :meth:`unsynced` to the next flush.
        """
        assert producers.end_offset <= offset
        # At 0 there is nothing to know; a second one at the same offset would say the same.
        if offset == 0 or (self._offsets and self._offsets[-1] >= offset):
            return
        path = self.path(offset)
        self._files.write_atomically(path, format_snapshot(producers), is_synced=False)
        self._offsets.append(offset)
        self._unsynced.append(path)

    def unsynced(self) -> list[Path]:
        """The files written since this was last asked."""
        paths, self._unsynced = self._unsynced, []
        return paths

    def add_unsynced(self, paths: Iterable[Path]) -> None:
        """These were not fsynced after all."""
        self._unsynced.extend(paths)

    def load_newest(self, start: int, end: int) -> ProducerStateManager:
        """The producers of the newest good snapshot above ``start`` and not above ``end``.

        Bad files are removed on the way. Nobody is known when there is none.
        """
        for offset in reversed([covered for covered in self._offsets if start < covered <= end]):
            try:
                found = parse_snapshot(self._files.read_whole(self.path(offset)))
            except BadSnapshot as bad:
                log.warning("removed a bad snapshot path=%s: %s", self.path(offset), bad)
                self._remove(offset)
                continue
            producers = ProducerStateManager(found)
            producers.end_offset = offset
            return producers
        producers = ProducerStateManager()
        producers.end_offset = start
        return producers

    def keep_only(self, bases: Iterable[int], end: int) -> None:
        """Remove those above ``end``, and those of no segment except the newest."""
        wanted = set(bases)
        for offset in [covered for covered in self._offsets if covered > end]:
            self._remove(offset)
        for offset in self._offsets[:-1]:
            if offset not in wanted:
                self._remove(offset)

    def remove_above(self, offset: int) -> list[Path]:
        """Rename those above ``offset`` to ``.deleted``; returns the new names."""
        return self.rename(covered for covered in self._offsets if covered > offset)

    def rename(self, offsets: Iterable[int]) -> list[Path]:
        """Rename those at ``offsets`` to ``.deleted``, where there are any; returns the names."""
        renamed = []
        for offset in sorted(set(offsets).intersection(self._offsets)):
            path = self.path(offset)
            # Renamed, not unlinked later under its own name: the log may have a snapshot there
            # again by then (KAFKA-12964).
            target = path.with_name(path.name + ".deleted")
            self._forget(offset)
            if self._files.exists(path):
                self._files.rename(path, target)
                renamed.append(target)
        return renamed

    def _remove(self, offset: int) -> None:
        self._forget(offset)
        self._files.unlink(self.path(offset))

    def _forget(self, offset: int) -> None:
        index = bisect_left(self._offsets, offset)
        assert self._offsets[index] == offset
        del self._offsets[index]
        path = self.path(offset)
        self._unsynced = [other for other in self._unsynced if other != path]


def sync_snapshot(files: Files, path: Path) -> None:
    """Fsync a snapshot that a truncation may have removed meanwhile."""
    try:
        files.sync_file(path)
    except StorageError as error:
        if not error.is_missing:
            raise
