"""Settings of a node's storage that change while it runs: compaction and silent producers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.storage.compaction.cleaner import LogCleaner
from barnabas.broker.storage.compaction.compaction_job import Compacted, CompactionJob, Rewritten
from barnabas.broker.storage.compaction.worker import LoopWorker
from barnabas.broker.storage.files import DiskFiles, Files
from tests.net.client import until
from tests.storage.compaction.compaction_harness import CompactionHarness
from tests.storage.log_harness import manager

SETTINGS = CleanerSettings(threads=1, backoff_ms=3_600_000)


class Worker:
    """One that only says whether it is there."""

    def __init__(self, workers: set[Worker]) -> None:
        self.workers = workers
        workers.add(self)

    async def compact(
        self, job: CompactionJob, publish: Callable[[Rewritten], Awaitable[bool]]
    ) -> Compacted:
        raise NotImplementedError

    def stop(self) -> None:
        """Nothing is under way."""

    async def close(self) -> None:
        self.workers.discard(self)


async def test_workers_of_compaction_come_and_go_with_their_setting(tmp_path: Path) -> None:
    logs = manager([tmp_path], DiskFiles())
    await logs.load()
    workers: set[Worker] = set()
    cleaner = LogCleaner(
        DiskFiles(), logs, SETTINGS, lambda topic, index: None, lambda: 0, lambda: Worker(workers)
    )
    running = asyncio.create_task(cleaner.run())
    for count in (1, 3, 1, 2, 0, 1):
        cleaner.reconfigure(replace(SETTINGS, threads=count))
        await until(lambda count=count: len(workers) == count)  # type: ignore[misc]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not workers
    await logs.close()


class Noting(LoopWorker):
    """Remembers what it was asked to do."""

    def __init__(self, files: Files) -> None:
        super().__init__(files)
        self.jobs: list[CompactionJob] = []

    async def compact(
        self, job: CompactionJob, publish: Callable[[Rewritten], Awaitable[bool]]
    ) -> Compacted:
        self.jobs.append(job)
        return await super().compact(job, publish)


async def test_the_next_pass_of_compaction_uses_the_settings_that_hold_now(tmp_path: Path) -> None:
    harness = await CompactionHarness(tmp_path, settings=SETTINGS, worker=Noting).open()
    changed = replace(SETTINGS, bytes_per_second=5e9, map_bytes=4096, threads=2)
    for settings in (SETTINGS, changed):
        harness.cleaner.reconfigure(settings)
        harness.put((b"a", b"1"), (b"a", b"2"))
        harness.roll()
        assert await harness.clean()
    assert isinstance(harness.worker, Noting)
    before, after = harness.worker.jobs
    assert (before.map_bytes, after.map_bytes) == (SETTINGS.map_bytes, 2048)
    assert after.bytes_per_second == 2.5e9
    await harness.close()


async def test_a_producer_is_forgotten_after_the_time_that_holds_now(tmp_path: Path) -> None:
    harness = await CompactionHarness(tmp_path).open()
    harness.put((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    harness.logs._keeping._now_ms = lambda: harness.now_ms

    async def known() -> list[int]:
        await harness.logs._keeping._expire_producers()
        return [producer for producer, _ in harness.log.producers]

    assert await known() == [7]
    harness.now_ms += 5_000
    assert await known() == [7]
    harness.logs.use_intervals(StorageSettings(producer_id_expiration_ms=1000))
    assert await known() == []
    await harness.close()
