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
from tests.storage.compaction.compacting import Compacting

SLOW = 100_000
"""Bytes a second: two seconds of a pass are left when its new file is seen."""


def worker(_: object) -> ProcessWorker:
    return ProcessWorker(idle_s=30)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Compacting]:
    opened = await Compacting(tmp_path, worker=worker).open()
    yield opened
    await opened.close()


def fill(rig: Compacting, count: int = 50, size: int = 0) -> None:
    for number in range(count):
        rig.put((b"k%d" % (number % 7), b"%d" % number + b"." * size))
    rig.roll()


def process(rig: Compacting) -> ProcessWorker:
    assert isinstance(rig.worker, ProcessWorker)
    return rig.worker


async def seen(ask: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, ask)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter while it is read
        return False


async def test_one_process_serves_pass_after_pass(rig: Compacting) -> None:
    fill(rig)
    expected = rig.view()
    assert await rig.clean()
    assert rig.view() == expected
    assert len(rig.offsets()) == 7
    pid = process(rig).pid
    fill(rig)
    expected = rig.view()
    assert await rig.clean()
    assert rig.view() == expected
    assert process(rig).pid == pid


async def test_an_idle_worker_ends_and_another_takes_its_place(rig: Compacting) -> None:
    rig.worker = short = ProcessWorker(idle_s=0.01)
    fill(rig)
    assert await rig.clean()
    await seen(lambda: short.pid is None)
    fill(rig)
    assert await rig.clean()
    await short.close()


async def test_a_killed_worker_fails_the_pass_but_not_the_log(rig: Compacting) -> None:
    slow = CleanerSettings(bytes_per_second=SLOW)
    rig.cleaner._settings = slow
    fill(rig, 200, size=1000)
    expected = rig.view()
    cleaning = asyncio.create_task(rig.clean())
    await seen(lambda: bool(rig.files_named(".cleaned")))
    pid = process(rig).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert not await cleaning
    assert not rig.cleaner.uncleanable
    rig.cleaner._settings = CleanerSettings()
    assert await rig.clean()
    assert rig.view() == expected
    assert not rig.files_named(".cleaned")


async def test_a_log_cut_below_ends_its_pass_and_keeps_nothing_of_it(rig: Compacting) -> None:
    rig.cleaner._settings = CleanerSettings(bytes_per_second=SLOW)
    fill(rig, 200, size=1000)
    cleaning = asyncio.create_task(rig.clean())
    await seen(lambda: bool(rig.files_named(".cleaned")))
    assert not rig.log.may_truncate_to(10)
    await rig.logs.write_recovery_points()
    rig.log.truncate_to(10)
    rig.put((b"new", b"1"))
    assert not await cleaning
    assert rig.offsets() == list(range(11))
    assert not rig.files_named(".cleaned")
    assert not rig.files_named(".swap")


async def test_a_topic_that_is_no_longer_compacted_ends_its_pass(rig: Compacting) -> None:
    fill(rig)
    rig.cleaner._settings = CleanerSettings(bytes_per_second=SLOW)
    fill(rig, 200, size=1000)
    cleaning = asyncio.create_task(rig.clean())
    await seen(lambda: bool(rig.files_named(".cleaned")))
    rig.log.config = rig.log.config.with_overrides({"cleanup.policy": "delete"})
    rig.cleaner._passes[rig.log].worker.stop()
    assert not await cleaning
    assert len(rig.offsets()) == 250
    rig.log.config = rig.log.config.with_overrides({"cleanup.policy": "compact,delete"})
    rig.cleaner._settings = CleanerSettings()
    assert await rig.clean()
    assert len(rig.offsets()) == 7


async def test_a_damaged_log_is_left_alone_and_others_are_compacted(rig: Compacting) -> None:
    other = rig.logs.create("u", 0, None)
    fill(rig)
    path = rig.log.segments.view.segments[0].path(".log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert not await rig.clean()
    assert list(rig.cleaner.uncleanable) == [rig.log]
    assert not await rig.clean()
    rig.log, damaged = other, rig.log
    fill(rig)
    assert await rig.clean()
    rig.log = damaged


async def test_a_failing_disk_takes_its_directory_offline(rig: Compacting) -> None:
    fill(rig)
    path = rig.log.segments.view.segments[0].path(".log")
    path.with_name(path.name + ".cleaned").mkdir()
    assert not await rig.clean()
    assert rig.log.is_offline


PARENT = """
import asyncio, sys
from pathlib import Path
from tests.storage.compaction.compacting import Compacting
from barnabas.broker.storage.compaction.worker_process import ProcessWorker
from barnabas.broker.storage.cleaner_settings import CleanerSettings

async def main():
    slow = CleanerSettings(bytes_per_second=10_000)
    path, worker = Path(sys.argv[1]), lambda _: ProcessWorker()
    rig = await Compacting(path, worker=worker, settings=slow).open()
    for number in range(200):
        rig.put((b"k", b"." * 1000))
    rig.roll()
    cleaning = asyncio.create_task(rig.clean())
    while rig.worker.pid is None:
        await asyncio.sleep(0.01)
    print(rig.worker.pid, flush=True)
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


async def test_a_pass_keeps_to_its_rate(rig: Compacting) -> None:
    loop = asyncio.get_running_loop()
    rig.cleaner._settings = CleanerSettings(bytes_per_second=200_000)
    fill(rig, 100, size=1000)
    began = loop.time()
    assert await rig.clean()
    moved = 2 * 100 * 1000  # both passes read it
    assert loop.time() - began >= moved / 200_000 - 0.35, "over windows of 300 ms"


def test_an_existing_file_alone_is_opened(tmp_path: Path) -> None:
    from barnabas.broker.storage.files import StorageError

    with pytest.raises(StorageError) as missing:
        DiskFiles().open_existing(tmp_path / "gone")
    assert missing.value.is_missing
    assert not (tmp_path / "gone").exists()
