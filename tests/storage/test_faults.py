"""What a log does when the disk refuses: docs/spec/log.md §2.9 and §3.1."""

from __future__ import annotations

import resource
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.broker.storage.cooperative import at_once
from barnabas.protocol.errors import ErrorCode, Refused
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import LogHarness, batch, offsets_of, read_all


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def harness(tmp_path: Path, files: FaultyFiles) -> LogHarness:
    harness = LogHarness(tmp_path / "t-0", files, segment_bytes=250)
    harness.append(batch(size=100))
    return harness


def refused(harness: LogHarness) -> ErrorCode:
    with pytest.raises(Refused) as error:
        harness.append(batch(size=100))
    return error.value.code


def test_a_failed_write_moves_no_offset_and_takes_the_log_offline(
    harness: LogHarness, files: FaultyFiles
) -> None:
    files.fail_next("write")
    assert refused(harness) == ErrorCode.KAFKA_STORAGE_ERROR
    assert (harness.log.end_offset, harness.log.is_offline) == (1, True)
    assert refused(harness) == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(harness.keeper.failures) == 1


def test_a_failed_read_takes_the_log_offline(harness: LogHarness, files: FaultyFiles) -> None:
    files.fail_next("read")
    with pytest.raises(Refused) as error:
        read_all(harness.log)
    assert (error.value.code, harness.log.is_offline) == (ErrorCode.KAFKA_STORAGE_ERROR, True)


def test_a_full_disk_stops_appends_only_until_the_tail_was_verified(
    harness: LogHarness, files: FaultyFiles
) -> None:
    files.is_full = True
    assert refused(harness) == ErrorCode.KAFKA_STORAGE_ERROR
    assert (harness.log.is_full, harness.log.is_offline, harness.keeper.failures) == (
        True,
        False,
        [],
    )
    assert offsets_of(read_all(harness.log)) == [0]
    files.is_full = False
    assert refused(harness) == ErrorCode.KAFKA_STORAGE_ERROR
    at_once(harness.log.verify_again())
    assert harness.append(batch(size=100)).base_offset == 1
    assert offsets_of(read_all(harness.log)) == [0, 1]


def test_a_disk_that_is_full_at_a_roll_leaves_the_log_as_it_was(
    harness: LogHarness, files: FaultyFiles
) -> None:
    harness.append(batch(size=100))
    files.is_full = True
    assert refused(harness) == ErrorCode.KAFKA_STORAGE_ERROR
    assert harness.log.segments.active.base_offset == 0
    files.is_full = False
    at_once(harness.log.verify_again())
    assert harness.append(batch(size=100)).base_offset == 2
    assert harness.log.segments.active.base_offset == 2


def test_a_tail_that_is_gone_after_a_full_disk_takes_the_log_offline(
    harness: LogHarness, files: FaultyFiles
) -> None:
    harness.append(batch(size=100))
    files.is_full = True
    refused(harness)
    files.is_full = False
    path = harness.segment_file(0)
    path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(Refused):
        at_once(harness.log.verify_again())
    assert harness.log.is_offline


async def test_a_full_disk_during_a_flush_keeps_what_is_still_to_be_flushed(
    harness: LogHarness, files: FaultyFiles
) -> None:
    for number in range(1, 4):
        harness.append(batch(size=100), epoch=number)
    files.is_full = True
    with pytest.raises(Refused):
        await harness.log.flush()
    assert (harness.log.recovery_point, harness.log.is_full, harness.log.is_offline) == (
        0,
        True,
        False,
    )
    files.is_full = False
    at_once(harness.log.verify_again())
    await harness.log.flush()
    harness.recovery_point = harness.log.recovery_point
    assert harness.recovery_point == 4
    assert len((await harness.crash()).epochs.pairs) == 4


@pytest.mark.parametrize("nth", range(6))
async def test_no_acknowledged_batch_is_lost_whichever_write_fails(
    tmp_path: Path, files: FaultyFiles, nth: int
) -> None:
    harness = LogHarness(tmp_path / "t-0", files, segment_bytes=250)
    files.fail_next("write", after=nth)
    acknowledged = 0
    with suppress(Refused):
        for _ in range(9):
            harness.append(batch(size=100))
            acknowledged += 1
    assert acknowledged == nth
    log = await harness.crash()
    assert offsets_of(read_all(log)) == list(range(acknowledged))


def test_a_short_write_is_undone(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(batch(size=100))
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (150, old_limit[1]))
        assert refused(harness) == ErrorCode.KAFKA_STORAGE_ERROR
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)
        signal.signal(signal.SIGXFSZ, old_handler)
    assert harness.segment_file(0).stat().st_size == 100


def test_a_log_may_be_deleted_while_its_tail_is_verified(
    tmp_path: Path, files: FaultyFiles
) -> None:
    harness = LogHarness(tmp_path / "t-0", files)
    for _ in range(4):
        harness.append(batch(size=1 << 20))
    files.is_full = True
    assert refused(harness) == ErrorCode.KAFKA_STORAGE_ERROR
    files.is_full = False
    steps = harness.log.verify_again()
    next(steps)
    harness.log.retire()
    at_once(steps)
    assert refused(harness) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_flush_that_a_full_disk_hindered_is_made_up_for(
    tmp_path: Path, files: FaultyFiles
) -> None:
    """Whoever waits for it sends the same batch again, and that is no append."""
    harness = LogHarness(tmp_path / "t-0", files, flush_messages=1)
    harness.append()
    files.is_full = True
    with pytest.raises(Refused):
        await harness.log.flush()
    files.is_full = False
    harness.keeper.flushes.clear()
    at_once(harness.log.verify_again())
    assert harness.keeper.flushes == [harness.log]
