"""All logs of this node: found at the start, created, deleted, kept safe, closed in order.

Source: docs/spec/log.md §2.1, §3.1, §3.2 and §4.2.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_settings import StorageSettings
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.recovery.loading import LoadedLog, load_log, new_log
from barnabas.broker.storage.segment.segment import Segment
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.settings import ConfigError

from .checkpoints import RECOVERY_POINTS
from .cooperative import uninterrupted
from .files import Files, StorageError
from .housekeeping import Housekeeping
from .log_directory import LogDirectory
from .partition_directory import (
    deleted_name,
    directory_name,
    is_deleted_name,
    is_stray_name,
    parse_directory_name,
    stray_name,
)
from .partition_metadata import identify, read_topic_id
from .stray_logs import StrayLogs

log = logging.getLogger(__name__)

Key = tuple[str, int]
HighWatermarks = Callable[[], Iterable[tuple[str, int, int]]]


class LogManager:
    """The logs under one or more directories.

    ``overrides`` gives a topic's own settings. Life: :meth:`load`, then :meth:`run` as a task
    while the node works, then :meth:`close`.
    """

    def __init__(
        self,
        files: Files,
        directories: Sequence[Path],
        defaults: LogConfig,
        overrides: Callable[[str], Mapping[str, str]],
        now_ms: Callable[[], int],
        *,
        intervals: StorageSettings,
        random: Random,
    ) -> None:
        assert directories, "a node without a log directory"
        self._files = files
        self._defaults = defaults
        self._overrides = overrides
        self._now_ms = now_ms
        self._intervals = intervals
        self._random = random
        self._logs: dict[Key, Log] = {}
        self._by_directory: dict[Path, dict[Key, Log]] = {path: {} for path in directories}
        self._by_topic: dict[str, dict[int, Log]] = {}
        """The same logs. Asked several times a second, or once a topic: to look for them among all
        would be 60 ms of 10,000 paths to compare."""
        self._renamed: set[LogDirectory] = set()
        """Those in which logs were deleted that a power cut may still bring back."""
        self._syncing = asyncio.Lock()
        self._strays = StrayLogs(files)
        self._returning: dict[Key, LogDirectory] = {}
        """Logs that are taken back and not loaded yet, in the order of the asking."""
        self._unwanted: set[Key] = set()
        """Those of them that are to be deleted when they are loaded."""
        self._wake_loading = asyncio.Event()
        self.directories = [LogDirectory(files, path) for path in directories]
        self.offline: list[Callable[[Path, Sequence[Key]], None]] = []
        """Told of a failed directory and the partitions in it, on the loop."""
        self._keeping = Housekeeping(files, self, intervals, now_ms)
        self.damaged: list[Callable[[], None]] = []
        """Told when damage was looked for in a log while it was in use."""
        self._keeping.inspection.found = self._damage_found
        self.on_space_available = self._keeping.on_space_available
        """Told when a log may be asked for again: a full disk has room, one is taken back."""

    # Starting

    async def load(self) -> None:
        """Open every directory and load every log in it.

        A directory that fails is left out; raises StorageError when none is left or when another
        process has one, ConfigError when two hold the same partition.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            for directory in self.directories:
                self._open(directory)
            self._check_any_online()
            for directory in self.directories:
                await self._load_all(directory)
            self._check_any_online()
        except BaseException:
            for directory in self.directories:
                directory.close()
            raise
        log.info("loaded logs=%d ms=%d", len(self._logs), (loop.time() - began) * 1000)

    def _open(self, directory: LogDirectory) -> None:
        try:
            directory.open()
        except StorageError as error:
            if error.is_locked:
                raise
            directory.take_offline(error)

    def _check_any_online(self) -> None:
        if not any(directory.is_online for directory in self.directories):
            paths = ", ".join(str(directory.path) for directory in self.directories)
            raise StorageError(self.directories[0].path, f"no log directory works: {paths}")

    async def _load_all(self, directory: LogDirectory) -> None:
        if not directory.is_online:
            return
        try:
            for name in self._files.list_directory(directory.path):
                if self._files.is_directory(directory.path / name):
                    await self._load_one(directory, name)
                    await asyncio.sleep(0)
            await self._lower_points(directory)
            await self._drop_gone(directory)
            directory.is_loaded = True
        except StorageError as error:
            self._take_offline(directory, error)

    async def _lower_points(self, directory: LogDirectory) -> None:
        """Have no recovery point on disk above the end of a log that came out shorter."""
        listed = directory.recovery_points
        now = {
            (partition_log.topic, partition_log.partition): partition_log.recovery_point
            for partition_log in self.logs_in(directory)
        }
        if any(point > now.get(key, 0) for key, point in listed.items()):
            await directory.replace(RECOVERY_POINTS, now)

    async def _drop_gone(self, directory: LogDirectory) -> None:
        """Have no checkpoint name a log that is gone: set aside, deleted or taken by somebody."""
        here = self._by_directory[directory.path].keys()
        if (directory.log_starts.keys() | directory.high_watermarks.keys()) - here:
            await self._keeping.drop_deleted(directory)

    async def _load_one(self, directory: LogDirectory, name: str) -> None:
        path = directory.path / name
        key = parse_directory_name(name)
        if is_deleted_name(name):
            self._keeping.remove_later(path, 0)
        elif is_stray_name(name):
            self._strays.add(path)
            log.warning(
                "left alone what was set aside path=%s: delete the directory when nobody lacks "
                "the records",
                path,
            )
        elif key is None:
            log.warning("skipped a directory that is no log path=%s", path)
        else:
            if key in self._logs:
                raise ConfigError(f"log.dirs: {path} and {self._logs[key].directory} are one log")
            await self._load_log(
                key,
                path,
                is_clean=directory.was_clean,
                recovery_point=directory.recovery_points.get(key),
                start_offset=directory.log_starts.get(key, 0),
            )

    async def _load_log(
        self,
        key: Key,
        path: Path,
        *,
        is_clean: bool,
        recovery_point: int | None,
        start_offset: int,
    ) -> Log:
        config = self._config(key[0])
        parts = await load_log(
            self._files,
            path,
            config=config,
            is_clean=is_clean,
            recovery_point=recovery_point,
            start_offset=start_offset,
            now_ms=self._now_ms(),
            producer_idle_ms=self._intervals.producer_id_expiration_ms,
        )
        return self._add(key, path, parts, config, read_topic_id(self._files, path))

    def _add(
        self, key: Key, path: Path, parts: LoadedLog, config: LogConfig, topic_id: bytes | None
    ) -> Log:
        added = self._logs[key] = Log(
            *key,
            path,
            parts,
            config=config,
            files=self._files,
            owner=self,
            now_ms=self._now_ms,
            random=self._random,
            topic_id=topic_id,
        )
        self._by_directory[path.parent][key] = added
        self._by_topic.setdefault(key[0], {})[key[1]] = added
        return added

    def _forget(self, key: Key) -> Log | None:
        gone = self._logs.pop(key, None)
        if gone is not None:
            del self._by_directory[gone.directory.parent][key]
            topic, partition = key
            del self._by_topic[topic][partition]
            if not self._by_topic[topic]:
                del self._by_topic[topic]
        return gone

    # Using

    def get(self, topic: str, partition: int) -> Log | None:
        """The log of a partition; None when this node has none."""
        return self._logs.get((topic, partition))

    @property
    def locked_directory(self) -> Path:
        """The first directory that works."""
        return next(directory.path for directory in self.directories if directory.is_online)

    @property
    def is_complete(self) -> bool:
        """Every directory works, so that a log which is not here is nowhere on this node."""
        return all(directory.is_online for directory in self.directories)

    def logs(self) -> list[Log]:
        """Every log, those of failed directories too."""
        return list(self._logs.values())

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        """The logs of one directory."""
        return list(self._by_directory[directory.path].values())

    def create(self, topic: str, partition: int, topic_id: bytes | None) -> Log:
        """The log of a partition, made in the emptiest directory unless it is there already.

        It is durable after its first flush, which starts at once. Raises StorageError, and
        Refused(INCONSISTENT_TOPIC_ID) when the log there belongs to another topic of that name,
        Refused(KAFKA_STORAGE_ERROR) while one that is taken back is loaded.
        """
        if (topic, partition) in self._returning:
            raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition} is being loaded")
        if found := self._logs.get((topic, partition)):
            self._check_id(found, topic_id)
            return found
        self._check_any_online()
        directory = self._emptiest()
        path = directory.path / directory_name(topic, partition)
        try:
            self._files.make_directory(path, is_synced=False)
            parts = new_log(self._files, path, self._now_ms())
            created = self._add((topic, partition), path, parts, self._config(topic), None)
            created.flusher.before_first.append(partial(self._files.sync_directory, directory.path))
            self._check_id(created, topic_id)
        except StorageError as error:
            # It is asked for again and again on a full disk, and each try opens a file.
            if (gone := self._forget((topic, partition))) is not None:
                gone.retire()
            if error.may_heal:
                self._keeping.wait_for_space(directory.path)
            else:
                self._take_offline(directory, error)
            raise
        self.schedule_flush(created)
        return created

    def _emptiest(self) -> LogDirectory:
        online = [directory for directory in self.directories if directory.is_online]
        return min(online, key=lambda directory: len(self._by_directory[directory.path]))

    def _check_id(self, found: Log, topic_id: bytes | None) -> None:
        if topic_id is not None and identify(self._files, found, topic_id):
            self.schedule_flush(found)

    def delete(self, topic: str, partition: int) -> None:
        """Forget a log; its name is free at once, its files go later. Raises StorageError.

        For good after :meth:`sync_deletions`; one that is taken back goes when it is loaded.
        """
        if (topic, partition) in self._returning:
            self._unwanted.add((topic, partition))
        if (gone := self._forget((topic, partition))) is not None:
            target = self._rename(gone, deleted_name(topic, partition, self._random))
            self._keeping.remove_later(target, gone.config.file_delete_delay_ms)
            log.info("deleted log=%s", gone.directory)

    def set_aside(self, topic: str, partition: int) -> Path | None:
        """Forget a log and keep its files under a name that is not opened; which one.

        None when there is no such log. Raises StorageError.
        """
        gone = self._forget((topic, partition))
        if gone is None:
            return None
        aside = self._rename(gone, stray_name(topic, partition, self._random))
        self._strays.add(aside)
        return aside

    def take_back(self, topic: str, partition: int, topic_id: bytes) -> bool:
        """Use again what was set aside of this partition; False when there is nothing to load.

        True until it is loaded, by :meth:`run`; ``on_space_available`` then. Raises StorageError.
        """
        key = (topic, partition)
        if key in self._returning:
            return True
        if key in self._logs or (source := self._strays.find(*key, topic_id)) is None:
            return False
        target = source.with_name(directory_name(*key))
        directory = next(
            directory for directory in self.directories if directory.path == source.parent
        )
        if not directory.is_online or self._files.exists(target):
            return False
        try:
            self._files.rename(source, target)
        except StorageError as error:
            self._take_offline(directory, error)
            raise
        self._strays.discard(source)
        self._returning[key] = directory
        self._wake_loading.set()
        log.warning("took back what was set aside path=%s as=%s", source, target)
        return True

    async def load_returned(self) -> None:
        """Load what is taken back, until cancelled."""
        while True:
            await self._wake_loading.wait()
            self._wake_loading.clear()
            for key, directory in tuple(self._returning.items()):
                try:
                    if directory.is_online:
                        await self._load_returned(key, directory)
                except StorageError as error:
                    self._take_offline(directory, error)
                self._returning.pop(key, None)  # not when cancelled: it is not known to be whole
                self._unwanted.discard(key)
                for callback in tuple(self.on_space_available):
                    callback()

    async def _load_returned(self, key: Key, directory: LogDirectory) -> None:
        """Verify it whole: what the checkpoints say may be of another log of that name."""
        sync = partial(self._files.sync_directory, directory.path)
        await uninterrupted(self._files.off_loop(sync))
        path = directory.path / directory_name(*key)
        loaded = await self._load_log(
            key, path, is_clean=False, recovery_point=None, start_offset=0
        )
        del self._returning[key]
        log.info("loaded what was set aside log=%s end=%d", path, loaded.end_offset)
        if not directory.is_online:
            loaded.take_offline(f"{directory.path} is offline")
        elif key in self._unwanted:
            self.delete(*key)

    def _rename(self, gone: Log, name: str) -> Path:
        """Give a forgotten log's directory another name; its own is free then."""
        gone.retire()
        self._keeping.forget(gone)
        target = gone.directory.with_name(name)
        try:
            self._files.rename(gone.directory, target)
        except StorageError as error:
            self.storage_failed(gone, error)
            raise
        self._renamed.update(
            directory for directory in self.directories if directory.path == target.parent
        )
        return target

    async def sync_deletions(self) -> None:
        """Have no power cut bring back what was deleted before, and no checkpoint name it.

        A new log of one of the names may be made after this. Raises StorageError.
        """
        # Another caller may have taken over the directories of our deletions, and not be done yet.
        async with self._syncing:
            renamed, self._renamed = self._renamed, set()
            for directory in renamed:
                sync = partial(self._files.sync_directory, directory.path)
                try:
                    await uninterrupted(self._files.off_loop(sync))
                    await self._keeping.drop_deleted(directory)
                except StorageError as error:
                    self._take_offline(directory, error)
                    raise

    def reconfigure(self, topic: str) -> None:
        """The settings of a topic changed: its logs take them over."""
        config = self._config(topic)
        for partition_log in self._by_topic.get(topic, {}).values():
            partition_log.config = config

    def use_defaults(self, defaults: LogConfig) -> None:
        """Other settings for every topic that sets nothing itself."""
        self._defaults = defaults
        configs = {topic: self._config(topic) for topic in self._by_topic}
        for (topic, _), partition_log in self._logs.items():
            partition_log.config = configs[topic]

    def _config(self, topic: str) -> LogConfig:
        config, problems = self._defaults.with_stored(self._overrides(topic))
        if problems:
            log.warning("left out settings topic=%s: %s", topic, "; ".join(problems))
        return config

    def use_intervals(self, intervals: StorageSettings) -> None:
        """Other times from now on; how often something is looked at changes with a restart only."""
        self._intervals = intervals
        self._keeping.use_intervals(intervals)

    def high_watermark(self, topic: str, partition: int) -> int:
        """As last written down, within the bounds of the log; the log must be here."""
        found = self._logs[topic, partition]
        mark = self._keeping.high_watermark((topic, partition), found.directory.parent)
        return min(max(mark, found.start_offset), found.end_offset)

    def record_high_watermarks(self, source: HighWatermarks) -> None:
        """Ask ``source`` for (topic, partition, high watermark) whenever they are written down."""
        self._keeping.high_watermark_source = source

    def bound_deletion(self, committed: Callable[[str, int], int | None]) -> None:
        """Ask ``committed`` for a partition's high watermark before a segment goes.

        None when nobody uses the log: what was last written down counts then.
        """
        self._keeping.committed = committed

    async def delete_old(self) -> None:
        """Look at every log now for segments that may go; :meth:`run` does it regularly."""
        await self._keeping.delete_old()

    async def run(self) -> None:
        """Flush, write checkpoints, unlink what was deleted: until cancelled.

        Raises ExceptionGroup with a StorageError when the last directory has failed.
        """
        await self._keeping.run()

    async def write_recovery_points(self) -> None:
        """Write them down now: to be awaited after a truncation, before the next append."""
        await self._keeping.lower_recovery_points()

    async def write_log_starts(self) -> frozenset[Path]:
        """Write them down now: to be awaited before somebody is told that records are gone."""
        return await self._keeping.write_log_starts()

    # What logs ask for

    def schedule_flush(self, log: Log) -> None:
        """Flush a log soon; :meth:`run` does it."""
        self._keeping.flush_soon(log)

    def repair(self, log: Log, segment: Segment) -> None:
        """Make the indexes of a segment again; :meth:`run` does it."""
        self._keeping.repair.ask(log, segment)

    def inspect(self, log: Log) -> None:
        """Look at suspect segments; :meth:`run` does it."""
        self._keeping.inspection.ask(log)

    def _damage_found(self, log: Log) -> None:
        for callback in tuple(self.damaged):
            callback()

    def listed_recovery_point(self, log: Log) -> int:
        """The greatest recovery point of a log that a start may find."""
        for directory in self.directories:
            if directory.path == log.directory.parent:
                return directory.listed_point((log.topic, log.partition))
        return 0

    def storage_failed(self, log: Log, error: StorageError) -> None:
        """Take the directory of a log offline, with all that is in it."""
        for directory in self.directories:
            if directory.path == log.directory.parent:
                self._take_offline(directory, error)

    def directory_failed(self, directory: LogDirectory, error: StorageError) -> None:
        """Take a directory offline, with all that is in it."""
        self._take_offline(directory, error)

    def discard(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Unlink renamed files after a while."""
        for path in paths:
            self._keeping.remove_later(path, delay_ms)

    def _take_offline(self, directory: LogDirectory, error: StorageError) -> None:
        if not directory.is_online:
            return
        directory.take_offline(error)
        affected = self.logs_in(directory)
        for partition_log in affected:
            partition_log.take_offline(f"{directory.path} is offline: {error}")
        for callback in tuple(self.offline):
            callback(
                directory.path,
                [(partition_log.topic, partition_log.partition) for partition_log in affected],
            )
        if not any(directory.is_online for directory in self.directories):
            self._keeping.fail(error)

    # Stopping

    async def close(self) -> None:
        """Make everything durable and mark what is complete; :meth:`run` must have ended."""
        await asyncio.gather(*(self._close(directory) for directory in self.directories))

    async def _close(self, directory: LogDirectory) -> None:
        logs = self.logs_in(directory)
        try:
            if directory.is_online:
                results = await asyncio.gather(
                    *(partition_log.close() for partition_log in logs), return_exceptions=True
                )
                await self._keeping.write_all(directory)
                is_whole = directory not in self._returning.values()
                if directory.is_loaded and is_whole and not any(results):
                    await directory.mark_clean()
                for result in results:
                    if isinstance(result, BaseException) and not isinstance(result, Refused):
                        raise result
        except StorageError as error:
            log.error("could not close in order path=%s: %s", directory.path, error)
        finally:
            for partition_log in logs:
                partition_log.retire()
            directory.close()
