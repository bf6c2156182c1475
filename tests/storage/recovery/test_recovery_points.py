"""A recovery point on disk may be old, it never lies: docs/spec/log.md §3.1, §3.3 and §3.6.

Most of these were met by the crash bench: what it found by cutting power is kept here as files.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from barnabas.broker.storage.checkpoints import RECOVERY_POINTS
from barnabas.broker.storage.files import DiskFiles
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.records.batch import assign
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import LogHarness, batch, manager, offsets_of, read_all, running
from tests.storage.simulated import in_simulated_time


def listed(directory: Path) -> list[str]:
    """The lines of the checkpoint."""
    path = directory / RECOVERY_POINTS
    return path.read_text().splitlines()[2:] if path.exists() else []


def filled(logs: LogManager, count: int = 10) -> Log:
    log = logs.create("t", 0, None)
    for _ in range(count):
        log.append(batch(size=100), leader_epoch=0, is_client=True)
    return log


def killed(logs: LogManager) -> None:
    for log in logs.logs():
        log.retire()
    logs.directories[0].close()


@in_simulated_time
async def test_a_log_that_came_out_shorter_has_its_recovery_point_lowered_before_it_is_used(
    tmp_path: Path,
) -> None:
    logs = manager([tmp_path])
    await logs.load()
    log = filled(logs)
    await log.flush()
    await logs.write_recovery_points()
    killed(logs)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:400])
    again = manager([tmp_path])
    await again.load()
    assert listed(tmp_path) == ["t 0 4"]
    killed(again)


@in_simulated_time
async def test_a_new_log_does_not_find_the_recovery_point_of_a_deleted_one(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        log = filled(logs)
        await log.flush()
        await logs.write_recovery_points()
        assert listed(tmp_path) == ["t 0 10"]
        logs.delete("t", 0)
        await asyncio.sleep(0.1)
        assert listed(tmp_path) == []
        filled(logs, 1)


@in_simulated_time
async def test_nothing_is_cut_that_a_start_would_trust(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        log = filled(logs)
        await log.flush()
        await logs.write_recovery_points()
        assert not log.may_truncate_to(4)
        assert log.end_offset == 10
        await logs.write_recovery_points()
        assert listed(tmp_path) == ["t 0 4"]
        assert log.may_truncate_to(4)
        log.truncate_to(4)
        assert (log.end_offset, log.recovery_point) == (4, 4)


@in_simulated_time
async def test_above_the_recovery_point_a_log_is_cut_at_once(tmp_path: Path) -> None:
    async with running(manager([tmp_path])) as logs:
        log = filled(logs)
        assert log.may_truncate_to(4)


@in_simulated_time
async def test_a_full_disk_loses_the_checkpoint_rather_than_keep_one_that_lies(
    tmp_path: Path,
) -> None:
    files = FaultyFiles()
    async with running(manager([tmp_path], files)) as logs:
        log = filled(logs)
        await log.flush()
        await logs.write_recovery_points()
        assert not log.may_truncate_to(4)
        files.is_full = True
        await logs.write_recovery_points()
        assert listed(tmp_path) == []
        assert log.may_truncate_to(4)
        files.is_full = False


class Recording(DiskFiles):
    """Remembers which segments were renamed and removed, and what was still there to be cut."""

    def __init__(self) -> None:
        self.gone: list[int] = []

    def _note(self, path: Path) -> None:
        if path.suffix == ".log":
            self.gone.append(int(path.stem))

    def rename(self, source: Path, target: Path) -> None:
        self._note(source)
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._note(path)
        super().unlink(path)


@pytest.fixture
def files() -> Recording:
    return Recording()


@pytest.fixture
def harness(tmp_path: Path, files: Recording) -> LogHarness:
    """Five segments of two batches of one record."""
    harness = LogHarness(tmp_path / "t-0", files, segment_bytes=200)
    for _ in range(10):
        harness.append(size=100)
    files.gone.clear()
    return harness


def test_a_truncation_removes_segments_from_the_end(harness: LogHarness, files: Recording) -> None:
    harness.log.truncate_to(3)
    assert files.gone == [8, 6, 4]


async def test_recovery_drops_segments_from_the_end(harness: LogHarness, files: Recording) -> None:
    path = harness.segment_file(2)
    path.write_bytes(path.read_bytes()[:150])
    await harness.crash()
    assert files.gone == [8, 6, 4]


async def test_an_old_block_that_leaves_a_hole_is_cut_off(harness: LogHarness) -> None:
    old = batch(size=100)
    assign(old, 15, 0)
    with harness.segment_file(8).open("ab") as file:
        file.write(old)
    assert (await harness.crash()).end_offset == 10


async def test_an_old_block_of_an_epoch_that_had_ended_is_cut_off(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    for epoch in (1, 3):
        harness.append(epoch=epoch)
    old = batch()
    assign(old, 2, 2)
    with harness.segment_file(0).open("ab") as file:
        file.write(old)
    assert (await harness.crash()).end_offset == 2


@pytest.mark.parametrize(("point", "end"), [(None, 8), (0, 2), (4, 8)])
async def test_holes_below_the_recovery_point_or_of_unknown_age_are_left_alone(
    tmp_path: Path, point: int | None, end: int
) -> None:
    harness = LogHarness(tmp_path / "t-0")
    data = b""
    for offset in (0, 1, 3, 4, 5, 6, 7):
        one = batch()
        assign(one, offset, 0)
        data += one
    harness.segment_file(0).write_bytes(data)
    harness.recovery_point = point
    assert (await harness.crash()).end_offset == end


async def test_a_compacted_log_keeps_holes_inside_a_segment(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", cleanup_policy="compact")
    data = b""
    for offset in (0, 2, 5):
        one = batch()
        assign(one, offset, 0)
        data += one
    harness.segment_file(0).write_bytes(data)
    assert offsets_of(read_all(await harness.crash())) == [0, 2, 5]
