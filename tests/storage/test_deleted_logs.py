"""What was written down of a deleted log must not be taken for the next log of its name.

Source: docs/log.md "Files"; LogManager.asyncDelete (3.9) writes recovery points and log starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.storage.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    parse_offsets,
)
from barnabas.broker.storage.files import Data
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_directory import MARKER
from barnabas.broker.storage.log_manager import LogManager
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import batch, manager, offsets_of, read_all, running
from tests.storage.simulated import in_simulated_time

TOPIC_ID = bytes(range(16))
ALL = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS)


def made(logs: LogManager, records: int, topic: str = "t") -> Log:
    log = logs.create(topic, 0, TOPIC_ID)
    log.append(batch(records), leader_epoch=0, is_client=True)
    return log


def listed(directory: Path, name: str) -> dict[tuple[str, int], int]:
    path = directory / name
    return dict(parse_offsets(path.read_text())) if path.exists() else {}


def is_listed(directory: Path, topic: str = "t") -> list[bool]:
    return [(topic, 0) in listed(directory, name) for name in ALL]


def killed(logs: LogManager) -> None:
    for log in logs.logs():
        log.retire()
    for directory in logs.directories:
        directory.close()


async def with_records_deleted(logs: LogManager, topic: str = "t") -> None:
    """5000 records, all committed, all deleted by DeleteRecords, and all that is written down."""
    logs.record_high_watermarks(lambda: [(topic, 0, 5000)])
    log = made(logs, 5000, topic)
    await log.flush()
    log.advance_start(5000)
    await logs.write_log_starts()
    await logs.write_recovery_points()
    await asyncio.sleep(6)
    assert is_listed(logs.directories[0].path, topic) == [True] * 3
    logs.record_high_watermarks(tuple)


@pytest.mark.parametrize("count", [100, 6000])
@in_simulated_time
async def test_records_of_a_topic_that_is_made_again_outlive_a_kill(
    tmp_path: Path, count: int
) -> None:
    logs = manager([tmp_path])
    async with running(logs):
        await with_records_deleted(logs)
        logs.delete("t", 0)
        await logs.sync_deletions()
        made(logs, count)
        killed(logs)
        again = manager([tmp_path])
        await again.load()
        log = again.get("t", 0)
        assert log is not None
        assert (log.start_offset, log.end_offset) == (0, count)
        assert offsets_of(read_all(log)) == list(range(count))
        assert again.high_watermark("t", 0) == 0, "nothing of it is known to be committed"
        killed(again)


@in_simulated_time
async def test_a_deletion_is_for_good_when_no_checkpoint_names_the_log(tmp_path: Path) -> None:
    logs = manager([tmp_path])
    async with running(logs):
        await with_records_deleted(logs, "u")
        await with_records_deleted(logs)
        logs.delete("t", 0)
        await logs.sync_deletions()
        assert is_listed(tmp_path) == [False] * 3
        assert is_listed(tmp_path, "u") == [True] * 3


@in_simulated_time
async def test_a_deletion_is_for_good_also_when_another_order_has_it_written(
    tmp_path: Path,
) -> None:
    async with running(manager([tmp_path])) as logs:
        await with_records_deleted(logs)
        logs.delete("t", 0)
        other = asyncio.create_task(logs.sync_deletions())
        await asyncio.sleep(0)
        await logs.sync_deletions()
        assert is_listed(tmp_path) == [False] * 3
        await other


@pytest.mark.parametrize("take_away", [LogManager.set_aside, LogManager.delete])
@in_simulated_time
async def test_checkpoints_forget_a_log_that_was_taken_away_at_once(
    tmp_path: Path, take_away: Callable[[LogManager, str, int], object]
) -> None:
    async with running(manager([tmp_path])) as logs:
        await with_records_deleted(logs)
        take_away(logs, "t", 0)
        await asyncio.sleep(0.1)
        assert is_listed(tmp_path) == [False] * 3
        assert not (tmp_path / MARKER).exists()


@pytest.mark.parametrize("ending", ["", "-stray"])
@in_simulated_time
async def test_a_start_forgets_logs_that_are_gone_before_another_gets_their_name(
    tmp_path: Path, ending: str
) -> None:
    """Somebody moved the directory away, or a kill came between the renaming and the writing."""
    logs = manager([tmp_path])
    async with running(logs):
        await with_records_deleted(logs)
        killed(logs)
        target = tmp_path / f"t-0.{'0' * 32}{ending}" if ending else tmp_path.parent / "moved"
        (tmp_path / "t-0").rename(target)
        again = manager([tmp_path])
        await again.load()
        assert is_listed(tmp_path) == [False] * 3
        assert again.directories[0].is_loaded
        killed(again)


@in_simulated_time
async def test_a_high_watermark_is_not_inherited_through_memory(tmp_path: Path) -> None:
    """What the file says is copied when somebody asks first: that may be after the deletion."""
    logs = manager([tmp_path])
    await logs.load()
    made(logs, 9)
    (tmp_path / HIGH_WATERMARKS).write_text("0\n1\nt 0 9\n")
    killed(logs)
    again = manager([tmp_path])
    await again.load()
    again.delete("t", 0)
    made(again, 5)
    assert again.high_watermark("t", 0) == 0
    killed(again)


@in_simulated_time
async def test_on_a_full_disk_deletion_goes_on_and_the_checkpoints_follow_when_there_is_room(
    tmp_path: Path,
) -> None:
    files = FaultyFiles()
    async with running(manager([tmp_path], files)) as logs:
        await with_records_deleted(logs, "u")
        await with_records_deleted(logs)
        files.is_full = True
        logs.delete("t", 0)
        await logs.sync_deletions()
        await asyncio.sleep(3)
        assert listed(tmp_path, LOG_STARTS)["u", 0] == 5000, "or its records would be back"
        assert logs.directories[0].is_online
        files.is_full = False
        await asyncio.sleep(2)
        assert listed(tmp_path, LOG_STARTS) == {("u", 0): 5000}


@in_simulated_time
async def test_the_deletion_of_many_logs_writes_each_checkpoint_a_few_times(
    tmp_path: Path,
) -> None:
    written: list[str] = []

    class Counting(FaultyFiles):
        def write_atomically(self, path: Path, data: Data, *, is_synced: bool = True) -> None:
            if path.parent == tmp_path:
                written.append(path.name)
            super().write_atomically(path, data, is_synced=is_synced)

    logs = manager([tmp_path], Counting())
    async with running(logs):
        for index in range(300):
            logs.create("t", index, TOPIC_ID)
        await asyncio.sleep(6)
        written.clear()
        for index in range(300):
            logs.delete("t", index)
            await asyncio.sleep(0)
        await logs.sync_deletions()
        await asyncio.sleep(1)
    assert max(written.count(name) for name in ALL) <= 4
