"""What goes on in the background of all logs: flushes, checkpoints, removals, second looks.

Source: docs/spec/log.md §3.1 (policy S, intervals of the checkpoints, disk full), §4.1 and §4.2.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.settings.log_config import FOREVER
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.recovery.damage_inspection import DamageInspection
from barnabas.broker.storage.recovery.index_repair import IndexRepair
from barnabas.protocol.errors import Refused

from .checkpoints import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, Offsets
from .cooperative import in_slices, uninterrupted
from .files import Files, StorageError
from .log_directory import LogDirectory
from .retention import RetentionPass, load_policy

if TYPE_CHECKING:
    from barnabas.broker.settings.node_settings import StorageSettings
    from barnabas.broker.storage.log.log import Log

log = logging.getLogger(__name__)

FREE_BYTES_MIN: Final = 1 << 20
"""A full disk with so much space again is worth a second look."""

_CHECK_MS: Final = 1000
_DELETIONS_MS: Final = 200


class LogRegistry(Protocol):
    """Who has the logs that are kept here."""

    directories: list[LogDirectory]

    def logs_in(self, directory: LogDirectory) -> Sequence[Log]:
        """The logs of one directory."""

    def directory_failed(self, directory: LogDirectory, error: StorageError) -> None:
        """The directory cannot be trusted any more."""

    async def load_returned(self) -> None:
        """Load logs that are taken back, until cancelled."""


class Housekeeping:
    """The background work of one :class:`~barnabas.broker.storage.log_manager.LogManager`."""

    def __init__(
        self,
        files: Files,
        keeper: LogRegistry,
        intervals: StorageSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self._files = files
        self._keeper = keeper
        self._intervals = intervals
        self._now_ms = now_ms
        self._due: dict[Log, None] = {}
        """In the order in which it was asked for: one seed of a simulation gives one history."""
        self._flushing: set[Log] = set()
        self._wake = asyncio.Event()
        self._deleted = asyncio.Event()
        self._points_fell = asyncio.Event()
        self._stale: set[LogDirectory] = set()
        """Directories whose checkpoints may still name deleted logs: it was not possible to write
        them."""
        self._failed = asyncio.Event()
        self._failure: StorageError | None = None
        self._removals: list[tuple[float, Path]] = []
        self._full_directories: set[Path] = set()
        self.on_space_available: list[Callable[[], None]] = []
        self._marks: dict[Path, dict[tuple[str, int], int]] = {}
        self.repair = IndexRepair(files)
        self.inspection = DamageInspection(files)
        self._retention = RetentionPass(
            load_policy(intervals.retention_policy), now_ms, self._committed
        )
        self.high_watermark_source: Callable[[], Iterable[tuple[str, int, int]]] = tuple
        self.committed: Callable[[str, int], int | None] = lambda topic, partition: None

    async def run(self) -> None:
        """All of it, until cancelled or until no directory is left."""
        intervals = self._intervals
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_failure())
            tasks.create_task(self._flush_due(tasks))
            tasks.create_task(self._watch_points())
            tasks.create_task(self._watch_deletions())
            tasks.create_task(self._delete_old())
            tasks.create_task(self.repair.run())
            tasks.create_task(self.inspection.run())
            tasks.create_task(self._keeper.load_returned())
            for interval_ms, action in (
                (intervals.flush_scheduler_interval_ms, self._flush_old),
                (intervals.recovery_point_interval_ms, self._advance_recovery_points),
                (intervals.start_offset_interval_ms, self.write_log_starts),
                (intervals.high_watermark_interval_ms, self._write_high_watermarks),
                (_CHECK_MS, self._write_stale),
                (_CHECK_MS, self._remove_due),
                (_CHECK_MS, self._verify_full),
                (_CHECK_MS, self._check_free_space),
                (intervals.producer_id_check_interval_ms, self._expire_producers),
            ):
                tasks.create_task(_every(interval_ms, action))

    def use_intervals(self, intervals: StorageSettings) -> None:
        """Other times for what asks each time; the tasks of :meth:`run` keep their pace."""
        self._intervals = intervals

    async def _watch_failure(self) -> None:
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def fail(self, error: StorageError) -> None:
        """The last directory has failed: end :meth:`run` with this."""
        self._failure = error
        self._failed.set()

    # Flushes

    def flush_soon(self, flushed: Log) -> None:
        """Flush a log as soon as its flush under way has ended."""
        if flushed not in self._due:
            self._due[flushed] = None
            self._wake.set()

    def forget(self, gone: Log) -> None:
        """A log was deleted."""
        self._deleted.set()
        self._due.pop(gone, None)
        for directory in self._keeper.directories:
            self._known_marks(directory).pop((gone.topic, gone.partition), None)

    async def _flush_due(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            for partition_log in [one for one in self._due if one not in self._flushing]:
                del self._due[partition_log]
                self._flushing.add(partition_log)
                tasks.create_task(self._flush(partition_log))

    async def _flush(self, flushed: Log) -> None:
        try:
            await flushed.flush()
        except Refused as refusal:
            # The log has told its owner already; here it only means that nothing moved.
            log.debug("did not flush log=%s: %s", flushed, refusal)
        finally:
            self._flushing.discard(flushed)
            if flushed in self._due:
                self._wake.set()

    async def _flush_old(self) -> None:
        now = asyncio.get_running_loop().time()
        for partition_log in self._online_logs():
            flush_ms, flusher = partition_log.config.flush_ms, partition_log.flusher
            is_due = flush_ms < FOREVER and now - flusher.flushed_at >= flush_ms / 1000
            if is_due and flusher.is_behind(partition_log.end_offset):
                self.flush_soon(partition_log)

    def _online_logs(self) -> list[Log]:
        return [
            partition_log
            for directory in self._keeper.directories
            if directory.is_online
            for partition_log in self._keeper.logs_in(directory)
            if not partition_log.is_offline
        ]

    # Checkpoints

    async def lower_recovery_points(self) -> None:
        """A log got shorter: what is written down must not be above what is durable.

        A full disk takes no new file; without any, the next start verifies everything.
        """
        await self._in_each(self._lower_points)

    async def _in_each(
        self,
        write: Callable[[LogDirectory], Awaitable[None]],
        among: Collection[LogDirectory] | None = None,
    ) -> None:
        """Write in each directory, or in those ``among`` them, that is online."""
        for directory in self._keeper.directories:
            if directory.is_online and (among is None or directory in among):
                try:
                    await write(directory)
                except StorageError as error:
                    self._keeper.directory_failed(directory, error)

    async def _lower_points(self, directory: LogDirectory) -> None:
        try:
            await directory.replace(RECOVERY_POINTS, self._recovery_points(directory))
        except StorageError as error:
            if not error.is_busy:
                raise
            log.warning("will write a checkpoint in a moment: %s", error)
            asyncio.get_running_loop().call_later(_CHECK_MS / 1000, self._points_fell.set)

    async def _watch_points(self) -> None:
        while True:
            await self._points_fell.wait()
            self._points_fell.clear()
            await self.lower_recovery_points()

    async def drop_deleted(self, directory: LogDirectory) -> None:
        """Have no checkpoint name a log that is not there: the next one may get its name.

        The start of its predecessor would hide or cut its records, the high watermark would call
        them committed, the recovery point durable. Raises StorageError; what a full disk does not
        take is written as soon as it does.
        """
        await self._lower_points(directory)
        await self._write_without_deleted(directory)

    async def _write_without_deleted(self, directory: LogDirectory) -> None:
        try:
            # Not removed on a full disk, as recovery points are: what DeleteRecords hid of the
            # other logs would be back after a crash.
            await directory.write(LOG_STARTS, self._log_starts(directory))
            await directory.write(HIGH_WATERMARKS, self._high_watermarks(directory))
        except StorageError as error:
            if not error.may_heal:
                raise
            if directory not in self._stale:
                log.warning("kept a checkpoint that names deleted logs for now: %s", error)
            self._stale.add(directory)
        else:
            self._stale.discard(directory)

    async def _write_stale(self) -> None:
        await self._in_each(self._write_without_deleted, self._stale)

    async def _watch_deletions(self) -> None:
        """A new log of an old name must not find what was written down of its predecessor."""
        while True:
            await self._deleted.wait()
            self._deleted.clear()
            await self._in_each(self.drop_deleted)
            # Thousands may be deleted one after the other; whoever deleted them has the files
            # written once more when all are gone.
            await asyncio.sleep(_DELETIONS_MS / 1000)

    async def _advance_recovery_points(self) -> None:
        """Write them down, and move them until the next time.

        The kernel writes dirty pages after half a minute in any case; with the point behind
        them, a crash costs the verification of a minute's batches and not of a whole segment.
        """
        await self._write_each(RECOVERY_POINTS, self._recovery_points)
        for partition_log in self._online_logs():
            if partition_log.flusher.is_behind(partition_log.end_offset):
                self.flush_soon(partition_log)

    async def write_log_starts(self) -> frozenset[Path]:
        """One line for each log that does not start where its first segment does.

        Gives back the directories whose file could not be written: those without room, or failed.
        """
        return await self._write_each(LOG_STARTS, self._log_starts)

    async def _write_high_watermarks(self) -> None:
        await self._write_each(HIGH_WATERMARKS, self._high_watermarks)

    async def write_all(self, directory: LogDirectory) -> None:
        """All checkpoints of one directory. Raises StorageError."""
        await directory.write(RECOVERY_POINTS, self._recovery_points(directory))
        await directory.write(LOG_STARTS, self._log_starts(directory))
        await directory.write(HIGH_WATERMARKS, self._high_watermarks(directory))

    async def _write_each(
        self, name: str, offsets: Callable[[LogDirectory], Offsets]
    ) -> frozenset[Path]:
        """Write one checkpoint in every directory; the ones in which that failed."""
        failed = set()
        for directory in self._keeper.directories:
            if not directory.is_online:
                continue
            try:
                await directory.write(name, offsets(directory))
            except StorageError as error:
                failed.add(directory.path)
                if error.may_heal:
                    log.warning("kept an old checkpoint: %s", error)
                else:
                    self._keeper.directory_failed(directory, error)
        return frozenset(failed)

    def _recovery_points(self, directory: LogDirectory) -> Offsets:
        return {
            (partition_log.topic, partition_log.partition): partition_log.recovery_point
            for partition_log in self._keeper.logs_in(directory)
        }

    def _log_starts(self, directory: LogDirectory) -> Offsets:
        return {
            (partition_log.topic, partition_log.partition): partition_log.start_offset
            for partition_log in self._keeper.logs_in(directory)
            if partition_log.start_offset > partition_log.segments.view.bases[0]
        }

    def _high_watermarks(self, directory: LogDirectory) -> Offsets:
        here = {
            (partition_log.topic, partition_log.partition)
            for partition_log in self._keeper.logs_in(directory)
        }
        marks = self._known_marks(directory)
        for topic, partition, mark in self.high_watermark_source():
            marks[topic, partition] = mark
        self._marks[directory.path] = {key: marks[key] for key in marks if key in here}
        return self._marks[directory.path]

    def _known_marks(self, directory: LogDirectory) -> dict[tuple[str, int], int]:
        # Copied once: each log asks while it is loaded, and the file names as many as there are.
        if directory.path not in self._marks:
            self._marks[directory.path] = dict(directory.high_watermarks)
        return self._marks[directory.path]

    def high_watermark(self, key: tuple[str, int], path: Path) -> int:
        """As last written down or read; 0 when never."""
        for directory in self._keeper.directories:
            if directory.path == path:
                return self._known_marks(directory).get(key, 0)
        return 0

    # Removals, second looks

    async def _delete_old(self) -> None:
        await asyncio.sleep(self._intervals.initial_task_delay_ms / 1000)
        while True:
            await self.delete_old()
            await asyncio.sleep(self._intervals.retention_check_interval_ms / 1000)

    async def delete_old(self) -> None:
        """One look at every log for segments that may go."""
        await self._retention.run(self._online_logs())

    def _committed(self, partition_log: Log) -> int:
        """The high watermark of a log that a replica uses; else what was written down of it."""
        mark = self.committed(partition_log.topic, partition_log.partition)
        if mark is None:
            mark = self.high_watermark(
                (partition_log.topic, partition_log.partition), partition_log.directory.parent
            )
        return mark

    def remove_later(self, path: Path, delay_ms: int) -> None:
        """Remove a renamed file or directory; a start finishes what a stop interrupts."""
        due = asyncio.get_running_loop().time() + delay_ms / 1000
        heapq.heappush(self._removals, (due, path))

    async def _remove_due(self) -> None:
        now = asyncio.get_running_loop().time()
        due = []
        while self._removals and self._removals[0][0] <= now:
            due.append(heapq.heappop(self._removals)[1])
        if due:
            await uninterrupted(self._files.off_loop(lambda: self._remove(due)))

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            try:
                if self._files.is_directory(path):
                    self._files.remove_tree(path)
                else:
                    self._files.unlink(path)
            except StorageError as error:
                log.warning("could not remove, the next start will: %s", error)

    async def _verify_full(self) -> None:
        for partition_log in self._online_logs():
            if partition_log.is_offline or not partition_log.is_full:
                continue  # deleted perhaps, while another one was looked at
            try:
                if self._files.disk_bytes(partition_log.directory)[1] >= FREE_BYTES_MIN:
                    await in_slices(partition_log.verify_again())
            except StorageError as error:
                partition_log.note_failure(error)
            except Refused as refusal:
                log.error("log=%s is not as it was: %s", partition_log, refusal)

    def wait_for_space(self, path: Path) -> None:
        """A log could not be created in a directory because its disk is full."""
        self._full_directories.add(path)

    async def _check_free_space(self) -> None:
        for path in tuple(self._full_directories):
            try:
                if self._files.disk_bytes(path)[1] < FREE_BYTES_MIN:
                    continue
            except StorageError as error:
                log.warning("gave up waiting for room: %s", error)
            else:
                for callback in tuple(self.on_space_available):
                    callback()
            self._full_directories.discard(path)

    async def _expire_producers(self) -> None:
        for partition_log in self._online_logs():
            partition_log.producers.expire(
                self._now_ms(), self._intervals.producer_id_expiration_ms
            )


async def _every(interval_ms: int, action: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(interval_ms / 1000)
        await action()
