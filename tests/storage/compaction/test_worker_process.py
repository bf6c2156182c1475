"""The worker process of compaction: what it does, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.broker.storage.compaction.worker_process import ProcessWorker
from barnabas.broker.storage.files import DiskFiles
from tests.harness.waiting import eventually
from tests.storage.compaction.compaction_harness import CompactionHarness

SLOW = 25_000
"""Bytes a second: eight seconds of a pass are left when its new file is seen."""


def worker(_: object) -> ProcessWorker:
    return ProcessWorker(idle_s=30)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[CompactionHarness]:
    opened = await CompactionHarness(tmp_path, worker=worker).open()
    yield opened
    await opened.close()


def fill(harness: CompactionHarness, count: int = 50, size: int = 0) -> None:
    for number in range(count):
        harness.put((b"k%d" % (number % 7), b"%d" % number + b"." * size))
    harness.roll()


def process(harness: CompactionHarness) -> ProcessWorker:
    assert isinstance(harness.worker, ProcessWorker)
    return harness.worker


async def seen(ask: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, ask)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter while it is read
        return False


async def test_one_process_serves_pass_after_pass(harness: CompactionHarness) -> None:
    fill(harness)
    expected = harness.view()
    assert await harness.clean()
    assert harness.view() == expected
    assert len(harness.offsets()) == 7
    pid = process(harness).pid
    fill(harness)
    expected = harness.view()
    assert await harness.clean()
    assert harness.view() == expected
    assert process(harness).pid == pid


async def test_an_idle_worker_ends_and_another_takes_its_place(harness: CompactionHarness) -> None:
    harness.worker = short = ProcessWorker(idle_s=0.01)
    fill(harness)
    assert await harness.clean()
    await seen(lambda: short.pid is None)
    fill(harness)
    assert await harness.clean()
    await short.close()


async def test_a_killed_worker_fails_the_pass_but_not_the_log(harness: CompactionHarness) -> None:
    slow = CleanerSettings(bytes_per_second=SLOW)
    harness.cleaner._settings = slow
    fill(harness, 200, size=1000)
    expected = harness.view()
    cleaning = asyncio.create_task(harness.clean())
    await seen(lambda: bool(harness.files_named(".cleaned")))
    pid = process(harness).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert not await cleaning
    assert not harness.cleaner.uncleanable
    harness.cleaner._settings = CleanerSettings()
    assert await harness.clean()
    assert harness.view() == expected
    assert not harness.files_named(".cleaned")


async def test_a_log_cut_below_ends_its_pass_and_keeps_nothing_of_it(
    harness: CompactionHarness,
) -> None:
    harness.cleaner._settings = CleanerSettings(bytes_per_second=SLOW)
    fill(harness, 200, size=1000)
    cleaning = asyncio.create_task(harness.clean())
    await seen(lambda: bool(harness.files_named(".cleaned")))
    assert not harness.log.may_truncate_to(10)
    await harness.logs.write_recovery_points()
    harness.log.truncate_to(10)
    harness.put((b"new", b"1"))
    assert not await cleaning
    assert harness.offsets() == list(range(11))
    assert not harness.files_named(".cleaned")
    assert not harness.files_named(".swap")


async def test_a_topic_that_is_no_longer_compacted_ends_its_pass(
    harness: CompactionHarness,
) -> None:
    fill(harness)
    harness.cleaner._settings = CleanerSettings(bytes_per_second=SLOW)
    fill(harness, 200, size=1000)
    cleaning = asyncio.create_task(harness.clean())
    await seen(lambda: bool(harness.files_named(".cleaned")))
    harness.log.config = harness.log.config.with_overrides({"cleanup.policy": "delete"})
    harness.cleaner._passes[harness.log].worker.stop()
    assert not await cleaning
    assert len(harness.offsets()) == 250
    harness.log.config = harness.log.config.with_overrides({"cleanup.policy": "compact,delete"})
    harness.cleaner._settings = CleanerSettings()
    assert await harness.clean()
    assert len(harness.offsets()) == 7


async def test_a_damaged_log_is_left_alone_and_others_are_compacted(
    harness: CompactionHarness,
) -> None:
    other = harness.logs.create("u", 0, None)
    fill(harness)
    path = harness.log.segments.view.segments[0].path(".log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert not await harness.clean()
    assert list(harness.cleaner.uncleanable) == [harness.log]
    assert not await harness.clean()
    harness.log, damaged = other, harness.log
    fill(harness)
    assert await harness.clean()
    harness.log = damaged


async def test_a_failing_disk_takes_its_directory_offline(harness: CompactionHarness) -> None:
    fill(harness)
    path = harness.log.segments.view.segments[0].path(".log")
    path.with_name(path.name + ".cleaned").mkdir()
    assert not await harness.clean()
    assert harness.log.is_offline


PARENT = """
import asyncio, sys
from pathlib import Path
from tests.storage.compaction.compaction_harness import CompactionHarness
from barnabas.broker.storage.compaction.worker_process import ProcessWorker
from barnabas.broker.settings.cleaner_settings import CleanerSettings

async def main():
    slow = CleanerSettings(bytes_per_second=10_000)
    path, worker = Path(sys.argv[1]), lambda _: ProcessWorker()
    harness = await CompactionHarness(path, worker=worker, settings=slow).open()
    for number in range(200):
        harness.put((b"k", b"." * 1000))
    harness.roll()
    cleaning = asyncio.create_task(harness.clean())
    while harness.worker.pid is None:
        await asyncio.sleep(0.01)
    print(harness.worker.pid, flush=True)
    await cleaning

asyncio.run(main())
"""


def test_the_worker_dies_with_the_daemon_however_that_dies(tmp_path: Path) -> None:
    daemon = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert daemon.stdout is not None
    with daemon.stdout:
        pid = int(daemon.stdout.readline())
    assert is_alive(pid)
    daemon.kill()
    daemon.wait()
    eventually(lambda: not is_alive(pid))


async def test_a_pass_keeps_to_its_rate(harness: CompactionHarness) -> None:
    loop = asyncio.get_running_loop()
    harness.cleaner._settings = CleanerSettings(bytes_per_second=200_000)
    fill(harness, 100, size=1000)
    began = loop.time()
    assert await harness.clean()
    moved = 2 * 100 * 1000  # both passes read it
    assert loop.time() - began >= moved / 200_000 - 0.35, "over windows of 300 ms"


def test_an_existing_file_alone_is_opened(tmp_path: Path) -> None:
    from barnabas.broker.storage.files import StorageError

    with pytest.raises(StorageError) as missing:
        DiskFiles().open_existing(tmp_path / "gone")
    assert missing.value.is_missing
    assert not (tmp_path / "gone").exists()
