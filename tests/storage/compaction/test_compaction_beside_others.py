"""Compaction beside what else happens to a log: truncation, deletion, retention, another worker.

What counts as compacted must have been: a tombstone that is taken for an old one would go before
the value that it deletes.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.broker.storage.compaction.cleaner_checkpoints import CLEANED
from barnabas.broker.storage.compaction.worker import LoopWorker
from tests.storage.compaction.compaction_harness import CompactionHarness
from tests.storage.compaction.test_dirty_ratio import three_segments
from tests.storage.simulated import in_simulated_time


def checkpoint(harness: CompactionHarness) -> str:
    return harness.files.read_whole(harness.directory / CLEANED).decode()


async def cut(harness: CompactionHarness, offset: int) -> None:
    while not harness.log.may_truncate_to(offset):
        await harness.logs.write_recovery_points()
    harness.log.truncate_to(offset)


async def grow(harness: CompactionHarness, end_offset: int) -> None:
    while harness.log.end_offset < end_offset:
        harness.put((b"k", b"v"))
    harness.roll()
    await harness.log.flush()
    await harness.logs.write_recovery_points()


@in_simulated_time
async def test_what_grows_after_a_truncation_is_dirty(tmp_path: Path) -> None:
    harness = await three_segments(tmp_path)
    assert await harness.clean()
    assert harness.first_dirty == 6
    await cut(harness, 2)
    assert harness.first_dirty <= 2
    await grow(harness, 8)
    assert harness.first_dirty <= 2
    assert await harness.clean()
    assert harness.offsets() == [7]
    await harness.close()


@in_simulated_time
async def test_what_grows_after_a_truncation_is_dirty_after_a_start_too(tmp_path: Path) -> None:
    harness = await three_segments(tmp_path)
    assert await harness.clean()
    await cut(harness, 2)
    await grow(harness, 8)
    (tmp_path / CLEANED).write_text("0\n1\nt 0 6\n")  # the last thing that a crash left of it
    await harness.cleaner._choose()
    assert checkpoint(harness) == "0\n1\nt 0 0\n"
    await harness.restart()
    assert await harness.clean()
    assert harness.offsets() == [7]
    await harness.close()


@in_simulated_time
async def test_a_checkpoint_above_what_was_durable_at_the_start_is_not_believed(
    tmp_path: Path,
) -> None:
    harness = await three_segments(tmp_path)
    assert await harness.clean()
    await cut(harness, 2)
    directory = harness.logs.directories[0].path
    harness.log.retire()
    harness.logs.directories[0].close()  # killed before the cleaner wrote anything
    assert (directory / CLEANED).read_text() == "0\n1\nt 0 6\n"
    await harness.open()
    assert not await harness.clean()
    harness.put((b"x", b"1"))
    harness.put((b"x", b"2"))
    await grow(harness, 8)
    assert await harness.clean()
    assert harness.offsets() == [1, 7]
    await harness.close()


@in_simulated_time
async def test_a_log_that_begins_anew_above_its_end_ends_its_pass(tmp_path: Path) -> None:
    harness = await three_segments(tmp_path)
    harness.cleaner._settings = CleanerSettings(bytes_per_second=100)
    cleaning = asyncio.create_task(harness.clean())
    await asyncio.sleep(0.5)
    assert not cleaning.done()
    harness.log.truncate_fully(100)
    assert not await cleaning
    assert harness.logs.is_complete
    assert harness.first_dirty == 100
    assert not harness.files_named(".cleaned")
    await harness.close()


@in_simulated_time
async def test_a_log_of_an_old_name_is_dirty_from_its_start(tmp_path: Path) -> None:
    harness = await three_segments(tmp_path)
    assert await harness.clean()
    harness.logs.delete("t", 0)
    harness.log = harness.logs.create("t", 0, None)
    await grow(harness, 8)
    assert harness.first_dirty == 0
    assert await harness.clean()
    assert harness.offsets() == [7]
    await harness.close()


@in_simulated_time
async def test_the_checkpoint_of_a_deleted_log_is_gone_from_the_disk_at_once(
    tmp_path: Path,
) -> None:
    harness = await three_segments(tmp_path)
    assert await harness.clean()
    running = asyncio.create_task(harness.cleaner.run())
    await asyncio.sleep(0.1)
    harness.logs.delete("t", 0)
    await asyncio.sleep(0.1)
    assert checkpoint(harness) == "0\n0\n"
    running.cancel()
    await asyncio.wait([running])
    await harness.close()


@in_simulated_time
async def test_segments_that_went_while_a_log_was_being_chosen_are_not_asked_for(
    tmp_path: Path,
) -> None:
    harness = await three_segments(tmp_path, cleanup_policy="compact,delete")
    for other in range(100):
        harness.logs.create("others", other, None)
    cleaning = asyncio.create_task(harness.clean())
    await asyncio.sleep(0)
    harness.log.delete_oldest(2)
    assert await cleaning
    assert harness.offsets() == [5]
    assert harness.logs.is_complete
    await harness.close()


@in_simulated_time
async def test_two_workers_never_compact_one_log_at_once(tmp_path: Path) -> None:
    harness = await three_segments(tmp_path)
    for other in range(100):
        harness.logs.create("others", other, None)
    passes = [harness.cleaner.clean_next(LoopWorker(harness.files)) for _ in range(2)]
    await asyncio.gather(*passes)
    assert harness.offsets() == [5]
    assert harness.logs.is_complete
    assert not harness.cleaner.uncleanable
    await harness.close()


@in_simulated_time
async def test_a_checkpoint_that_cannot_be_read_takes_its_directory_offline(
    tmp_path: Path,
) -> None:
    harness = await three_segments(tmp_path)
    await harness.close()
    await harness.open()
    (tmp_path / CLEANED).mkdir()
    assert not await harness.clean()
    assert not harness.logs.is_complete
    await harness.close()
