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
from tests.storage.compaction.compacting import Compacting
from tests.storage.compaction.test_dirty_ratio import three_segments
from tests.storage.simulated import in_simulated_time


def checkpoint(rig: Compacting) -> str:
    return rig.files.read_whole(rig.directory / CLEANED).decode()


async def cut(rig: Compacting, offset: int) -> None:
    while not rig.log.may_truncate_to(offset):
        await rig.logs.write_recovery_points()
    rig.log.truncate_to(offset)


async def grow(rig: Compacting, end_offset: int) -> None:
    while rig.log.end_offset < end_offset:
        rig.put((b"k", b"v"))
    rig.roll()
    await rig.log.flush()
    await rig.logs.write_recovery_points()


@in_simulated_time
async def test_what_grows_after_a_truncation_is_dirty(tmp_path: Path) -> None:
    rig = await three_segments(tmp_path)
    assert await rig.clean()
    assert rig.first_dirty == 6
    await cut(rig, 2)
    assert rig.first_dirty <= 2
    await grow(rig, 8)
    assert rig.first_dirty <= 2
    assert await rig.clean()
    assert rig.offsets() == [7]
    await rig.close()


@in_simulated_time
async def test_what_grows_after_a_truncation_is_dirty_after_a_start_too(tmp_path: Path) -> None:
    rig = await three_segments(tmp_path)
    assert await rig.clean()
    await cut(rig, 2)
    await grow(rig, 8)
    (tmp_path / CLEANED).write_text("0\n1\nt 0 6\n")  # the last thing that a crash left of it
    await rig.cleaner._choose()
    assert checkpoint(rig) == "0\n1\nt 0 0\n"
    await rig.restart()
    assert await rig.clean()
    assert rig.offsets() == [7]
    await rig.close()


@in_simulated_time
async def test_a_checkpoint_above_what_was_durable_at_the_start_is_not_believed(
    tmp_path: Path,
) -> None:
    rig = await three_segments(tmp_path)
    assert await rig.clean()
    await cut(rig, 2)
    directory = rig.logs.directories[0].path
    rig.log.retire()
    rig.logs.directories[0].close()  # killed before the cleaner wrote anything
    assert (directory / CLEANED).read_text() == "0\n1\nt 0 6\n"
    await rig.open()
    assert not await rig.clean()
    rig.put((b"x", b"1"))
    rig.put((b"x", b"2"))
    await grow(rig, 8)
    assert await rig.clean()
    assert rig.offsets() == [1, 7]
    await rig.close()


@in_simulated_time
async def test_a_log_that_begins_anew_above_its_end_ends_its_pass(tmp_path: Path) -> None:
    rig = await three_segments(tmp_path)
    rig.cleaner._settings = CleanerSettings(bytes_per_second=100)
    cleaning = asyncio.create_task(rig.clean())
    await asyncio.sleep(0.5)
    assert not cleaning.done()
    rig.log.truncate_fully(100)
    assert not await cleaning
    assert rig.logs.is_complete
    assert rig.first_dirty == 100
    assert not rig.files_named(".cleaned")
    await rig.close()


@in_simulated_time
async def test_a_log_of_an_old_name_is_dirty_from_its_start(tmp_path: Path) -> None:
    rig = await three_segments(tmp_path)
    assert await rig.clean()
    rig.logs.delete("t", 0)
    rig.log = rig.logs.create("t", 0, None)
    await grow(rig, 8)
    assert rig.first_dirty == 0
    assert await rig.clean()
    assert rig.offsets() == [7]
    await rig.close()


@in_simulated_time
async def test_the_checkpoint_of_a_deleted_log_is_gone_from_the_disk_at_once(
    tmp_path: Path,
) -> None:
    rig = await three_segments(tmp_path)
    assert await rig.clean()
    running = asyncio.create_task(rig.cleaner.run())
    await asyncio.sleep(0.1)
    rig.logs.delete("t", 0)
    await asyncio.sleep(0.1)
    assert checkpoint(rig) == "0\n0\n"
    running.cancel()
    await asyncio.wait([running])
    await rig.close()


@in_simulated_time
async def test_segments_that_went_while_a_log_was_being_chosen_are_not_asked_for(
    tmp_path: Path,
) -> None:
    rig = await three_segments(tmp_path, cleanup_policy="compact,delete")
    for other in range(100):
        rig.logs.create("others", other, None)
    cleaning = asyncio.create_task(rig.clean())
    await asyncio.sleep(0)
    rig.log.delete_oldest(2)
    assert await cleaning
    assert rig.offsets() == [5]
    assert rig.logs.is_complete
    await rig.close()


@in_simulated_time
async def test_two_workers_never_compact_one_log_at_once(tmp_path: Path) -> None:
    rig = await three_segments(tmp_path)
    for other in range(100):
        rig.logs.create("others", other, None)
    passes = [rig.cleaner.clean_next(LoopWorker(rig.files)) for _ in range(2)]
    await asyncio.gather(*passes)
    assert rig.offsets() == [5]
    assert rig.logs.is_complete
    assert not rig.cleaner.uncleanable
    await rig.close()


@in_simulated_time
async def test_a_checkpoint_that_cannot_be_read_takes_its_directory_offline(
    tmp_path: Path,
) -> None:
    rig = await three_segments(tmp_path)
    await rig.close()
    await rig.open()
    (tmp_path / CLEANED).mkdir()
    assert not await rig.clean()
    assert not rig.logs.is_complete
    await rig.close()
