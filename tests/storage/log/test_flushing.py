"""When what was appended is safe from a power cut: docs/spec/log.md §3.1."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest

from barnabas.broker.storage.files import DiskFiles
from barnabas.protocol.errors import ErrorCode, Refused
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import LogHarness, batch, config


class SlowFiles(DiskFiles):
    """A disk whose next work in a thread waits until it is let go."""

    def __init__(self) -> None:
        self.go = Event()
        self.began = asyncio.Event()
        self.synced: list[Path] = []
        """Directories, as often as they were fsynced."""

    def sync_directory(self, path: Path) -> None:
        self.synced.append(path)
        super().sync_directory(path)

    async def off_loop(self, work):  # type: ignore[no-untyped-def]
        def wait_first():  # type: ignore[no-untyped-def]
            self.go.wait(30)
            return work()

        self.began.set()
        return await super().off_loop(wait_first)


async def test_a_flush_moves_the_recovery_point_to_the_end_it_found(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(count=3)
    assert harness.log.recovery_point == 0
    await harness.log.flush()
    assert harness.log.recovery_point == 3


async def test_appends_go_on_while_a_flush_works_and_are_not_counted_by_it(tmp_path: Path) -> None:
    files = SlowFiles()
    harness = LogHarness(tmp_path / "t-0", files)
    harness.append(count=3)
    flush = asyncio.create_task(harness.log.flush())
    await files.began.wait()
    harness.append(count=2)
    files.go.set()
    await flush
    assert (harness.log.end_offset, harness.log.recovery_point) == (5, 3)


async def test_a_truncation_during_a_flush_keeps_the_recovery_point_low(tmp_path: Path) -> None:
    files = SlowFiles()
    harness = LogHarness(tmp_path / "t-0", files)
    for _ in range(3):
        harness.append()
    flush = asyncio.create_task(harness.log.flush())
    await files.began.wait()
    harness.log.truncate_to(1)
    harness.append(count=5)
    files.go.set()
    await flush
    assert harness.log.recovery_point == 0


async def test_renames_of_a_truncation_during_a_flush_are_durable_with_the_next_one(
    tmp_path: Path,
) -> None:
    files = SlowFiles()
    harness = LogHarness(tmp_path / "t-0", files, segment_bytes=200)
    for _ in range(6):
        harness.append(size=100)
    flush = asyncio.create_task(harness.log.flush())
    await files.began.wait()
    harness.log.truncate_to(1)
    files.go.set()
    await flush
    files.synced.clear()
    await harness.log.flush()
    assert files.synced == [harness.directory]
    await harness.log.flush()
    assert files.synced == [harness.directory]


async def test_a_cancelled_flush_ends_only_when_its_thread_has(tmp_path: Path) -> None:
    files = SlowFiles()
    harness = LogHarness(tmp_path / "t-0", files)
    harness.append()
    flush = asyncio.create_task(harness.log.flush())
    await files.began.wait()
    flush.cancel()
    await asyncio.sleep(0)
    assert not flush.done()
    files.go.set()
    with pytest.raises(asyncio.CancelledError):
        await flush
    await harness.log.flush()
    assert harness.log.recovery_point == 1


@pytest.mark.parametrize(("every", "durable"), [(1, 0), (3, 2), (10, 5), (2**63 - 1, 5)])
def test_at_most_one_record_less_than_the_policy_is_acknowledged_unsafe(
    tmp_path: Path, every: int, durable: int
) -> None:
    harness = LogHarness(tmp_path / "t-0", flush_messages=every)
    harness.append(count=5)
    assert harness.log.durable_offset == durable


async def test_a_flush_is_asked_for_when_the_policy_is_reached(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", flush_messages=3)
    harness.append(count=2)
    assert harness.keeper.flushes == []
    harness.append()
    assert harness.keeper.flushes == [harness.log]
    told: list[int] = []
    harness.log.on_durable.append(lambda: told.append(harness.log.durable_offset))
    await harness.log.flush()
    assert told == [3]
    harness.append(count=2)
    assert harness.keeper.flushes == [harness.log]


async def test_a_stricter_policy_asks_for_a_flush_at_once(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(count=5)
    harness.log.config = config({"flush.messages": 5})
    assert (harness.keeper.flushes, harness.log.durable_offset) == ([harness.log], 4)


async def test_a_flush_writes_what_a_restart_from_its_point_needs(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=200, index_interval_bytes=50)
    for number in range(9):
        harness.append(batch(size=100), epoch=number // 4)
    await harness.log.flush()
    harness.recovery_point = harness.log.recovery_point
    for path in harness.directory.glob("*.index"):
        assert path.stat().st_size % 8 == 0
    log = await harness.crash()
    assert (log.end_offset, log.epochs.pairs) == (9, [(0, 0), (1, 4), (2, 8)])


async def test_a_failed_fsync_takes_the_log_offline_and_moves_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    harness = LogHarness(tmp_path / "t-0", files)
    harness.append()
    files.fail_next("fsync")
    with pytest.raises(Refused) as refused:
        await harness.log.flush()
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (harness.log.recovery_point, harness.log.is_offline, len(harness.keeper.failures)) == (
        0,
        True,
        1,
    )
    with pytest.raises(Refused):
        harness.append()
    with pytest.raises(Refused):
        harness.log.read(0, bytes_max=1, end=1, at_least_one=True)


async def test_a_new_name_is_synced_once_not_with_every_flush(tmp_path: Path) -> None:
    files = FaultyFiles()
    harness = LogHarness(tmp_path / "t-0", files)
    harness.append()
    await harness.log.flush()
    before = files.counts["fsync"]
    harness.append()
    await harness.log.flush()
    assert files.counts["fsync"] - before == 1
