"""Logs that are deleted, cut or rolled just when background work has come to them.

A topic may go while its log waits for a flush, an inspection or a second look; nothing of that may
end the node. When descriptors run out, nothing is done and nothing is given up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.broker.storage.cooperative import at_once
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.recovery.damage_inspection import DamageInspection
from barnabas.broker.storage.recovery.segment_recovery import sound_end
from barnabas.protocol.errors import ErrorCode, Refused
from tests.storage.faulty_files import FaultyFiles
from tests.storage.log_harness import LogHarness, batch, manager, offsets_of, read_all, running
from tests.storage.simulated import in_simulated_time


def filled(logs: LogManager, topic: str, count: int = 3, size: int = 100) -> Log:
    log = logs.create(topic, 0, None)
    for _ in range(count):
        log.append(batch(size=size), leader_epoch=0, is_client=True)
    return log


@in_simulated_time
async def test_a_log_deleted_while_its_flush_waits_for_its_turn_ends_nothing(
    tmp_path: Path,
) -> None:
    async with running(manager([tmp_path])) as logs:
        log = filled(logs, "t")
        async with log.flusher.flush_lock:
            logs.schedule_flush(log)
            await asyncio.sleep(1)
            logs.delete("t", 0)
        other = filled(logs, "t")
        await asyncio.sleep(100)
        assert other.recovery_point == 3


@in_simulated_time
async def test_a_log_deleted_while_another_is_verified_on_a_full_disk_ends_nothing(
    tmp_path: Path,
) -> None:
    class Disk(FaultyFiles):
        def disk_bytes(self, path: Path) -> tuple[int, int]:
            if not self.is_full:
                logs.delete("second", 0)
            return super().disk_bytes(path)

    files = Disk()
    async with running(manager([tmp_path], files)) as logs:
        first, second = filled(logs, "first"), filled(logs, "second")
        await asyncio.sleep(1)
        files.is_full = True
        for log in (first, second):
            with pytest.raises(Refused):
                log.append(batch(size=100), leader_epoch=0, is_client=True)
        files.is_full = False
        await asyncio.sleep(10)
        assert not first.is_full
        again = filled(logs, "second")
        await asyncio.sleep(100)
        assert again.recovery_point == 3


def test_a_log_truncated_while_it_is_verified_on_a_full_disk_is_looked_at_again(
    tmp_path: Path,
) -> None:
    files = FaultyFiles()
    harness = LogHarness(tmp_path / "t-0", files)
    for _ in range(4):
        harness.append(batch(size=600_000))
    files.is_full = True
    with pytest.raises(Refused):
        harness.append()
    files.is_full = False
    steps = harness.log.verify_again()
    next(steps)
    harness.log.truncate_to(2)
    assert list(steps) == []
    assert (harness.log.is_full, harness.keeper.failures) == (True, [])
    at_once(harness.log.verify_again())
    harness.append(epoch=1)
    assert offsets_of(read_all(harness.log)) == [0, 1, 2]


async def test_a_deleted_log_is_not_inspected(tmp_path: Path) -> None:
    harness = LogHarness(tmp_path / "t-0")
    harness.append(batch(size=100))
    await harness.log.flush()
    harness.segment_file(0).write_bytes(bytes(100))
    with pytest.raises(Refused):
        harness.log.read(0, bytes_max=1, end=1, at_least_one=True)
    harness.log.retire()
    await DamageInspection(harness.files).inspect(harness.log)
    assert not (harness.directory / "quarantine").exists()


async def test_the_last_time_of_a_segment_that_was_flushed_before_its_roll_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    harness = LogHarness(tmp_path / "t-0", segment_bytes=250)
    for _ in range(2):
        harness.append(batch(size=100))
    await harness.log.flush()
    harness.append(batch(size=100))
    await harness.log.flush()
    assert list(harness.log.segments.view.bases) == [0, 2]
    with caplog.at_level(logging.WARNING):
        await harness.restart()
    assert caplog.messages == []
    assert sound_end(harness.log.segments.view.segments[0]) is not None


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process may open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    held = []
    try:
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_without_descriptors_requests_are_refused_and_nothing_goes_offline(
    tmp_path: Path,
) -> None:
    logs = manager([tmp_path], segment_bytes=250)
    await logs.load()
    log = filled(logs, "t", 2)
    await log.flush()
    assert log.segments.active.close_if_idle()
    with no_descriptors():
        for _ in range(2):
            with pytest.raises(Refused) as refused:
                log.append(batch(size=100), leader_epoch=0, is_client=True)
            assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(Refused):
            read_all(log)
        with pytest.raises(Refused):
            await log.flush()
        await logs._keeping._advance_recovery_points()
        await logs.write_recovery_points()
        await logs.write_log_starts()
    assert logs.is_complete
    log.append(batch(size=100), leader_epoch=0, is_client=True)
    assert offsets_of(read_all(log)) == [0, 1, 2]
    await log.flush()
    assert all(segment._uses == 0 for segment in log.segments.view.segments)
    await logs.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
