"""How far one log is safe from a power cut, and what makes it safer.

A flush writes, in this order: producer snapshots, leader epochs, the segments above the recovery
point with their indexes, new names in the directory. Only then the recovery point moves.

    start ........ recovery point ............ end
    | a start trusts it | verified batch by batch |

The point may lag behind the truth, which costs time; it must never lead, which costs data.
Source: docs/spec/log.md §3.1; §9 pitfalls P2 to P5, P13 and P15.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from barnabas.broker.storage.cooperative import uninterrupted
from barnabas.broker.storage.files import Files, StorageError
from barnabas.broker.storage.leader_epochs import FILE_NAME, LeaderEpochs
from barnabas.broker.storage.producers.producer_snapshots import ProducerSnapshots, sync_snapshot
from barnabas.broker.storage.segment.segment import Segment

Work = Callable[[], None]


class Flusher:
    """The recovery point of one log; flushes are one at a time, in a thread."""

    __slots__ = (
        "_directory",
        "_epochs",
        "_files",
        "_generation",
        "_is_abandoned",
        "_messages_max",
        "_names",
        "_names_version",
        "_saved_epochs",
        "_snapshots",
        "before_first",
        "due_at",
        "flush_lock",
        "flushed_at",
        "on_durable",
        "recovery_point",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        recovery_point: int,
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
    ) -> None:
        self._files = files
        self._directory = directory
        self._epochs = epochs
        self._snapshots = snapshots
        self._saved_epochs = 0
        self._messages_max = 1
        self._generation = 0
        self.flush_lock = asyncio.Lock()
        """Who holds it may rename files: no flush is under way that writes by their names."""
        self._names = threading.Lock()
        self._names_version = 0
        self._is_abandoned = False
        self.recovery_point = recovery_point
        """The first offset that may not survive a power cut."""
        self.due_at = recovery_point
        """The end offset at which the policy asks for a flush."""
        self.flushed_at = 0.0
        """Loop time of the last flush."""
        self.on_durable: list[Callable[[], None]] = []
        """Called on the loop each time the recovery point has moved up."""
        self.before_first: list[Work] = []
        """Blocking work that makes the new directory itself durable."""

    def configure(self, messages_max: int) -> None:
        """Ask for a flush when so many records are unsafe."""
        self._messages_max = messages_max
        self.due_at = self.recovery_point + messages_max

    def is_behind(self, end_offset: int) -> bool:
        """Whether a flush would have anything to do."""
        return (
            self.recovery_point < end_offset
            or bool(self.before_first)
            or self._saved_epochs != self._epochs.version
        )

    def lower(self, offset: int) -> None:
        """The log was truncated to ``offset``: a flush under way must not raise the point again."""
        self._generation += 1
        self._move(min(self.recovery_point, offset))

    def note_names(self) -> None:
        """Names in the directory changed: a flush under way may have fsynced it before that."""
        self._names_version += 1

    def skip_to(self, offset: int) -> None:
        """The log begins at ``offset`` now: what lay below cannot be lost any more."""
        if offset > self.recovery_point:
            self._rise(offset)

    def _move(self, offset: int) -> None:
        self.recovery_point = offset
        self.due_at = offset + self._messages_max

    def _rise(self, offset: int) -> None:
        self._move(offset)
        # A copy: whoever is told may take itself off the list.
        for callback in tuple(self.on_durable):
            callback()

    async def flush(
        self, segments: Callable[[], Iterable[Segment]], end: Callable[[], int]
    ) -> None:
        """Make everything below the present ``end()`` durable.

        ``segments()`` are those at or above the recovery point; both are asked once it is this
        flush's turn. Raises StorageError: the disk can then not be trusted any more.
        """
        async with self.flush_lock:
            if self._is_abandoned:
                return  # closed or deleted while this flush waited for its turn
            # Taken before anything is written: what is appended while the thread works is not in it
            # (docs/spec/log.md §9 P13).
            upto, generation, version = end(), self._generation, self._epochs.version
            first, self.before_first = self.before_first, []
            snapshots = self._snapshots.unsynced()
            try:
                await self._write(
                    [*first, *self._small_files(version, snapshots)], list(segments())
                )
            except StorageError:
                # Not durable after all, and asked of the next flush: a name that nobody fsyncs is a
                # log that a power cut takes.
                self.before_first[:0] = first
                self._snapshots.add_unsynced(snapshots)
                raise
            self._saved_epochs = max(self._saved_epochs, version)
            self.flushed_at = asyncio.get_running_loop().time()
            if generation == self._generation and upto > self.recovery_point:
                assert upto <= end(), "the recovery point would lead the log"
                self._rise(upto)

    async def _write(self, work: list[Work], segments: list[Segment]) -> None:
        states = []
        try:
            for segment in segments:
                sync, save, state = segment.prepare_sync()
                states.append((segment, state))
                # Batches before their indexes: no durable index names a batch that is not.
                work += [sync, partial(self._unless_abandoned, save)]
        except StorageError:
            for segment, _ in states:
                segment.release()
            raise
        names_version = self._names_version
        # One fsync of the directory for all new names of a flush. Without it a power cut keeps the
        # bytes and loses the name (KAFKA-3968); one with each file stalled nodes with thousands.
        if any(segment.is_new for segment in segments):
            names = partial(self._files.sync_directory, self._directory)
            work.append(partial(self._unless_abandoned, names))
        await uninterrupted(self._files.off_loop(partial(_run_all, work)))
        for segment, state in states:
            # On the loop again, and only when all of it succeeded: what failed is written again.
            # A truncation meanwhile renamed files: a power cut may bring back what it dropped.
            if names_version == self._names_version:
                segment.is_new = False
            segment.indexes.mark_saved(state)

    def abandon(self) -> None:
        """The directory's name is about to mean another log: write nothing more by name.

        Waits for the small file that a thread may be writing just now.
        """
        with self._names:
            self._is_abandoned = True

    def _unless_abandoned(self, step: Work) -> None:
        with self._names:
            if not self._is_abandoned:
                step()

    def _small_files(self, version: int, snapshots: list[Path]) -> list[Work]:
        work: list[Work] = [partial(sync_snapshot, self._files, path) for path in snapshots]
        if version != self._saved_epochs:
            path, data = self._directory / FILE_NAME, self._epochs.to_bytes()
            save = partial(self._files.write_atomically, path, data)
            work.append(partial(self._unless_abandoned, save))
        return work


def _run_all(work: list[Work]) -> None:
    """Every step, in order; when one fails the rest still run, for they give segments back."""
    failure: Exception | None = None
    for step in work:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - raised again below
            failure = failure or error
    if failure is not None:
        raise failure
