"""Compaction of a node with many logs: what one pass costs must not grow with them.

Which files say what, and which log is next, stays as if each pass looked at everything.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.broker.storage.checkpoints import RECOVERY_POINTS, read_offsets
from barnabas.broker.storage.compaction import cleaner as cleaner_module
from barnabas.broker.storage.compaction.cleaner import LogCleaner
from barnabas.broker.storage.compaction.cleaner_checkpoints import CLEANED
from barnabas.broker.storage.compaction.compaction_job import Compacted, CompactionJob
from barnabas.broker.storage.compaction.worker import LoopWorker, Publish
from barnabas.broker.storage.files import Data, DiskFiles, StorageError
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_directory import LogDirectory
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.records.batch import build_batch
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import T0, manager
from tests.storage.simulated import in_simulated_time

T = TypeVar("T")
KEY = ("t", 0)


class CountingFiles(DiskFiles):
    """The real disk; counts how often each small file is written."""

    def __init__(self) -> None:
        self.written: Counter[str] = Counter()

    def write_atomically(self, path: Path, data: Data, *, is_synced: bool = True) -> None:
        self.written[path.name] += 1
        super().write_atomically(path, data, is_synced=is_synced)


class SlowFiles(DiskFiles):
    """The real disk; what is done beside the loop takes a second."""

    async def off_loop(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(1)
        return work()


class RememberingWorker(LoopWorker):
    """Remembers in which order it was given logs."""

    def __init__(self) -> None:
        super().__init__(DiskFiles())
        self.directories: list[str] = []

    async def compact(self, job: CompactionJob, publish: Publish) -> Compacted:
        self.directories.append(job.directory.name)
        return await super().compact(job, publish)


def cleaner_of(logs: LogManager, files: DiskFiles) -> LogCleaner:
    def committed(topic: str, partition: int) -> int | None:
        log = logs.get(topic, partition)
        return None if log is None else log.end_offset

    return LogCleaner(files, logs, CleanerSettings(), committed, lambda: T0)


async def some_logs(
    logs: LogManager, counts: Mapping[str, int], cleaner: LogCleaner
) -> dict[str, Log]:
    """A log a topic, compacted, with so many new batches behind ten that are clean."""
    await logs.load()
    made = {topic: logs.create(topic, 0, None) for topic in counts}
    for log in made.values():
        fill(log, 10)
    worker = LoopWorker(DiskFiles())
    while await cleaner.clean_next(worker):
        pass
    for topic, log in made.items():
        fill(log, counts[topic])
    return made


def fill(log: Log, count: int) -> None:
    for number in range(log.end_offset, log.end_offset + count):
        batch = build_batch([(b"k%d" % number, b"v")], timestamp_ms=T0)
        log.append(batch, leader_epoch=0, is_client=True)
    log.roll()


def compacted(directories: list[Path], files: DiskFiles) -> LogManager:
    return manager(directories, files, cleanup_policy="compact", min_cleanable_dirty_ratio=0)


@in_simulated_time
async def test_recovery_points_are_written_only_for_a_log_of_which_they_do_not_say_enough(
    tmp_path: Path,
) -> None:
    files = CountingFiles()
    logs = compacted([tmp_path], files)
    cleaner = cleaner_of(logs, files)
    made = await some_logs(logs, dict.fromkeys("abcde", 3), cleaner)
    for log in made.values():
        await log.flush()
    files.written.clear()
    worker = LoopWorker(files)
    for _ in made:
        assert await cleaner.clean_next(worker)
        found = read_offsets(files, tmp_path / RECOVERY_POINTS)
        assert found == dict.fromkeys(((topic, 0) for topic in made), 13)
    assert files.written[RECOVERY_POINTS] == 1
    assert files.written[CLEANED] == 5
    fill(made["c"], 1)
    assert await cleaner.clean_next(worker)
    assert files.written[RECOVERY_POINTS] == 2
    assert read_offsets(files, tmp_path / RECOVERY_POINTS)["c", 0] == 14
    await logs.close()


@in_simulated_time
async def test_a_point_that_is_about_to_fall_is_not_believed(tmp_path: Path) -> None:
    directory = LogDirectory(SlowFiles(), tmp_path)
    directory.open()
    async with asyncio.TaskGroup() as tasks:
        asyncio.get_running_loop().call_later(
            0.5, lambda: tasks.create_task(directory.write(RECOVERY_POINTS, {KEY: 2}))
        )
        await directory.write(RECOVERY_POINTS, {KEY: 10})
        await directory.reach_point(KEY, 5, lambda: {KEY: 7})
    assert read_offsets(DiskFiles(), tmp_path / RECOVERY_POINTS) == {KEY: 7}
    directory.close()


@in_simulated_time
async def test_a_point_that_could_not_be_written_or_is_of_another_process_is_not_believed(
    tmp_path: Path,
) -> None:
    files = FaultyFiles()
    directory = LogDirectory(files, tmp_path)
    directory.open()
    await directory.write(RECOVERY_POINTS, {KEY: 3})
    files.fail_next("checkpoint")
    with pytest.raises(StorageError):
        await directory.write(RECOVERY_POINTS, {KEY: 9})
    await directory.reach_point(KEY, 9, lambda: {KEY: 9})
    assert read_offsets(files, tmp_path / RECOVERY_POINTS) == {KEY: 9}
    directory.close()
    # Its rename may not have reached the disk.
    again = LogDirectory(files, tmp_path)
    again.open()
    before = files.counts["checkpoint"]
    await again.reach_point(KEY, 9, lambda: {KEY: 9})
    await again.reach_point(KEY, 9, lambda: {KEY: 9})
    assert files.counts["checkpoint"] == before + 1
    again.close()


@in_simulated_time
async def test_each_directory_lists_what_is_compacted_in_it(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in "xy"]
    files = DiskFiles()
    logs = compacted(paths, files)
    cleaner = cleaner_of(logs, files)
    made = await some_logs(logs, dict.fromkeys("abcdef", 1), cleaner)
    logs.delete("a", 0)
    logs.delete("d", 0)
    made["e"].truncate_fully(4)
    await cleaner._checkpoints.save()
    found = [read_offsets(files, path / CLEANED) for path in paths]
    assert all(found)
    for path, listed in zip(paths, found, strict=True):
        assert listed == {
            (log.topic, 0): 0 if log.topic == "e" else 10
            for log in logs.logs()
            if log.directory.parent == path
        }
    await logs.close()


def test_one_look_at_many_logs_chooses_the_dirtiest_for_several_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaner_module, "_LOGS_A_PASS", 2)
    check_order(tmp_path, looks=3)


def test_each_pass_is_chosen_by_a_look_of_its_own_where_logs_are_few(tmp_path: Path) -> None:
    check_order(tmp_path, looks=7)


@in_simulated_time
async def check_order(path: Path, looks: int) -> None:
    files = DiskFiles()
    logs = compacted([path], files)
    cleaner = cleaner_of(logs, files)
    made = await some_logs(logs, {"a": 2, "b": 6, "c": 4, "d": 1, "e": 6, "f": 3}, cleaner)
    cleaner._chosen = []
    seen = 0
    look = cleaner._look

    async def counted() -> list[Log]:
        nonlocal seen
        seen += 1
        return await look()

    cleaner._look = counted  # type: ignore[method-assign]
    worker = RememberingWorker()
    while await cleaner.clean_next(worker):
        pass
    assert worker.directories == ["b-0", "e-0", "c-0", "f-0", "a-0", "d-0"]
    assert seen == looks
    assert len(made) == 6
    await logs.close()
