"""Holes in offsets that a follower copied: a start keeps what is behind them.

Source: docs/log.md, "What a crash can take".
"""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.files import Files
from barnabas.broker.storage.recovery.offset_holes import FILE_NAME
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.records.batch import assign
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import T0, LogHarness, batch, config, offsets_of, read_all
from tests.storage.simulated import in_simulated_time
from tests.storage.stopping_files import Died, StoppingFiles, copied, cut

KEPT = [0, 1, 2, *range(10, 21)]


def copies(*offsets: int, epoch: int = 0) -> bytes:
    """Batches of one record each, as a leader sends them."""
    data = b""
    for offset in offsets:
        one = batch(size=100)
        assign(one, offset, epoch)
        data += one
    return data


def follower(directory: Path, files: Files | None = None, **overrides: object) -> LogHarness:
    """A log that was copied from one with a hole; a start finds the recovery point below it."""
    harness = LogHarness(directory / "t-0", files, **overrides)
    harness.log.append_as_follower(copies(*KEPT))
    harness.recovery_point = 2
    return harness


@pytest.mark.parametrize("segment_bytes", [1 << 20, 300])
async def test_a_follower_keeps_what_is_behind_a_hole_when_its_process_is_killed(
    tmp_path: Path, segment_bytes: int
) -> None:
    harness = follower(tmp_path, segment_bytes=segment_bytes)
    for _ in range(2):
        log = await harness.crash()
        assert (log.end_offset, offsets_of(read_all(log))) == (21, KEPT)


async def test_a_hole_is_kept_when_the_topic_is_no_longer_compacted(tmp_path: Path) -> None:
    harness = follower(tmp_path, cleanup_policy="compact")
    harness.config = config()
    assert offsets_of(read_all(await harness.crash())) == KEPT


async def test_a_log_that_copied_no_hole_is_cut_at_one(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.log.append_as_follower(copies(0, 1, 2))
    with harness.segment_file(0).open("ab") as file:
        file.write(copies(10, 11))
    assert not (harness.directory / FILE_NAME).exists()
    assert (await harness.crash()).end_offset == 3


async def test_an_old_block_of_an_epoch_that_had_ended_is_cut_off_a_log_with_holes(
    tmp_path: Path,
) -> None:
    harness = follower(tmp_path)
    harness.log.append_as_follower(copies(25, epoch=3))
    with harness.segment_file(0).open("ab") as file:
        file.write(copies(30, epoch=2))
    assert (await harness.crash()).end_offset == 26


async def test_a_raised_offset_in_a_log_with_holes_is_told_by_the_batch_behind_it(
    tmp_path: Path,
) -> None:
    harness = follower(tmp_path)
    harness.log.retire()
    path = harness.segment_file(0)
    data = path.read_bytes()
    path.write_bytes(data[:500] + copies(12 + 64)[:8] + data[508:])
    log = await harness.crash()
    assert (log.end_offset, offsets_of(read_all(log))) == (12, [0, 1, 2, 10, 11])


async def test_a_hole_is_not_copied_while_a_full_disk_takes_no_note_of_it(tmp_path: Path) -> None:
    files = FaultyFiles()
    harness = LogHarness(tmp_path / "t-0", files)
    files.is_full = True
    with pytest.raises(Refused) as refused:
        harness.log.append_as_follower(copies(5))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (harness.log.end_offset, harness.log.is_full) == (0, True)


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_the_note_of_a_hole_is_as_durable_as_what_is_behind_it(*, is_power_cut: bool) -> None:
    check_every_step(is_power_cut=is_power_cut)


@in_simulated_time
async def check_every_step(*, is_power_cut: bool) -> None:
    """Die before each change of the disk while batches behind a hole are appended and flushed."""
    step, is_over = 0, False
    while not is_over:
        disk = StoppingFiles(lambda: T0)
        harness = LogHarness(Path("/data/t-0"), disk)
        harness.log.append_as_follower(copies(0, 1, 2))
        await harness.log.flush()
        harness.recovery_point = 2
        disk.arm(step)
        try:
            harness.log.append_as_follower(copies(*KEPT[3:]))
            await harness.log.flush()
            is_over = True
        except Died:
            step += 1
        disk.is_dead = True
        safe = harness.log.recovery_point if is_power_cut else harness.log.end_offset
        for seed in range(5):
            harness.files = cut(disk, seed) if is_power_cut else copied(disk)
            assert (await harness.crash()).end_offset >= safe
    assert step > 10
