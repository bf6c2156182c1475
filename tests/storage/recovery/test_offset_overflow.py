"""Segments whose offsets do not fit 31 bits above their base: split when a log is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.segment.segment_indexes import OFFSETS_MAX
from barnabas.protocol.records.batch import assign, build_batch
from barnabas.protocol.records.message_set import encode_messages
from barnabas.protocol.records.record import Record
from tests.sim.simulated_files import SimulatedFiles
from tests.storage.log_harness import T0, LogHarness, offsets_of, read_all
from tests.storage.simulated import in_simulated_time
from tests.storage.stopping_files import Died, StoppingFiles, copied, cut

FAR = OFFSETS_MAX + 1
DIRECTORY = Path("/data/t-0")


def batch_at(offset: int) -> bytes:
    built = build_batch([(b"k", b"%d" % offset)], timestamp_ms=T0)
    assign(built, offset, 0)
    return bytes(built)


def written(disk: SimulatedFiles, offsets: list[int], after: list[int], rest: bytes) -> LogHarness:
    """A log of one segment with ``offsets`` that old cleaners made, and perhaps a later one."""
    harness = LogHarness(DIRECTORY, disk, index_interval_bytes=0, cleanup_policy="compact")
    harness.log.retire()
    for base, held, tail in ((0, offsets, rest), (after[0] if after else -1, after, b"")):
        if held:
            file = disk.open_append(DIRECTORY / f"{base:020d}.log")
            file.append(b"".join(map(batch_at, held)) + tail)
            file.sync_now()
    disk.sync_directory(DIRECTORY)
    harness.recovery_point = after[0] if after else 0
    return harness


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("after", [[], [3 * FAR, 3 * FAR + 1]])
def test_such_a_segment_is_split_and_every_record_found(is_clean: bool, after: list[int]) -> None:
    check_split(is_clean, after)


@in_simulated_time
async def check_split(is_clean: bool, after: list[int]) -> None:
    offsets = [0, 7, FAR, FAR + 7, 2 * FAR + 1]
    disk = SimulatedFiles(lambda: T0)
    harness = written(disk, offsets, after, b"")
    log = await harness.reload(is_clean=is_clean)
    assert list(log.segments.view.bases) == [0, FAR, 2 * FAR + 1, *after[:1]]
    assert offsets_of(read_all(log)) == offsets + after
    for offset in offsets + after:
        data = log.read(offset, bytes_max=1, end=log.end_offset, at_least_one=True)
        assert offsets_of(data) == [offset]
    assert [name for name in disk.list_directory(DIRECTORY) if "." in name[21:25]] == []
    harness.append()
    log = await harness.restart()
    assert len(offsets_of(read_all(log))) == len(offsets + after) + 1


@in_simulated_time
async def test_a_damaged_tail_is_still_cut_after_the_split() -> None:
    harness = written(SimulatedFiles(lambda: T0), [0, FAR], [], b"\0" * 100)
    log = await harness.reload(is_clean=False)
    assert log.end_offset == FAR + 1
    assert offsets_of(read_all(log)) == [0, FAR]


@in_simulated_time
async def test_a_wrapper_of_an_older_format_is_split_off_at_its_first_message() -> None:
    disk = SimulatedFiles(lambda: T0)
    harness = written(disk, [0], [], b"")
    records = [Record(FAR - 1, T0, b"k", b"1"), Record(FAR + 3, T0, b"k", b"2")]
    disk.open_append(DIRECTORY / f"{0:020d}.log").append(encode_messages(records, 1, codec=1))
    log = await harness.reload(is_clean=False)
    assert list(log.segments.view.bases) == [0, FAR - 1]
    assert offsets_of(read_all(log)) == [0, FAR - 1, FAR + 3]


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_split_interrupted_at_any_step_loses_nothing(is_power_cut: bool) -> None:
    check_interrupted(is_power_cut)


@in_simulated_time
async def check_interrupted(is_power_cut: bool) -> None:
    step, is_over = 0, False
    while not is_over:
        disk = StoppingFiles(lambda: T0)
        harness = written(disk, [0, FAR, 2 * FAR + 1], [], b"")
        disk.arm(step)
        try:
            await harness.reload(is_clean=False)
            is_over = True
        except Died:
            step += 1
        disk.is_dead = True
        harness.files = cut(disk, step) if is_power_cut else copied(disk)
        log = await harness.reload(is_clean=False)
        assert offsets_of(read_all(log)) == [0, FAR, 2 * FAR + 1]
    assert step > 10
