"""What the storage tests share: batches, logs without a manager, a node's settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from barnabas.broker.settings.log_config import LogConfig
from barnabas.broker.settings.node_config import StorageSettings
from barnabas.broker.storage.files import DiskFiles, Files, StorageError
from barnabas.broker.storage.log.log import Log, LogAppendInfo
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.recovery.loading import load_log, new_log
from barnabas.broker.storage.segment.batch_headers import header_at
from barnabas.broker.storage.segment.segment import Segment
from barnabas.protocol.records.batch import build_batch, iterate, records

T0 = 1_700_000_000_000


class Clock:
    """A wall clock that stands still."""

    def __init__(self) -> None:
        self.ms = T0

    def __call__(self) -> int:
        return self.ms


class RecordingOwner:
    """A log's owner that only remembers what it was asked."""

    def __init__(self) -> None:
        self.flushes: list[Log] = []
        self.failures: list[StorageError] = []
        self.discarded: list[Path] = []
        self.inspected: list[Log] = []
        self.repairs: list[Segment] = []

    def schedule_flush(self, log: Log) -> None:
        self.flushes.append(log)

    def repair(self, log: Log, segment: Segment) -> None:
        self.repairs.append(segment)

    def inspect(self, log: Log) -> None:
        self.inspected.append(log)

    def listed_recovery_point(self, log: Log) -> int:
        return 0

    def storage_failed(self, log: Log, error: StorageError) -> None:
        self.failures.append(error)
        log.take_offline(str(error))

    def discard(self, paths: Iterable[Path], delay_ms: int) -> None:
        self.discarded += paths


def batch(count: int = 1, *, size: int = 0, time: int = T0, **fields: Any) -> bytearray:
    """A batch of ``count`` records; ``size`` bytes in all when that is given."""
    pairs = [(b"key", b"value")] * count
    built = build_batch(pairs, timestamp_ms=time, **fields)
    if size:
        padding = size - len(built)
        for extra in range(padding, padding - 8, -1):
            pairs[-1] = (b"key", b"value" + b"." * extra)
            built = build_batch(pairs, timestamp_ms=time, **fields)
            if len(built) == size:
                return built
        raise AssertionError(f"no batch of {size} bytes")
    return built


def config(overrides: Mapping[str, object] | None = None) -> LogConfig:
    return LogConfig().with_overrides({k: str(v) for k, v in (overrides or {}).items()})


class LogHarness:
    """One log in a directory of its own, opened and reopened without a manager."""

    def __init__(self, directory: Path, files: Files | None = None, **overrides: object) -> None:
        self.files = files or DiskFiles()
        self.directory = directory
        self.config = config({k.replace("_", "."): v for k, v in overrides.items()})
        self.keeper = RecordingOwner()
        self.clock = Clock()
        self.recovery_point: int | None = 0
        """What the checkpoint says at the next opening."""
        self.files.make_directory(directory)
        self.log = self._log(new_log(self.files, directory, self.clock()))

    def _log(self, parts: Any) -> Log:
        return Log(
            "t",
            0,
            self.directory,
            parts,
            config=self.config,
            files=self.files,
            owner=self.keeper,
            now_ms=self.clock,
            random=Random(1),
        )

    def append(self, one: bytearray | None = None, epoch: int = 0, **fields: Any) -> LogAppendInfo:
        is_client = fields.pop("is_client", True)
        one = batch(**fields) if one is None else one
        return self.log.append(one, leader_epoch=epoch, is_client=is_client)

    async def reload(self, *, is_clean: bool, start_offset: int = 0) -> Log:
        """Open the directory again, as a start after a clean stop or a crash would."""
        self.log.retire()
        parts = await load_log(
            self.files,
            self.directory,
            config=self.config,
            is_clean=is_clean,
            recovery_point=self.recovery_point,
            start_offset=start_offset,
            now_ms=self.clock(),
            producer_idle_ms=86_400_000,
        )
        self.log = self._log(parts)
        return self.log

    async def crash(self, start_offset: int = 0) -> Log:
        """The process is killed and started again."""
        return await self.reload(is_clean=False, start_offset=start_offset)

    async def restart(self, start_offset: int = 0) -> Log:
        """The log is closed in order and opened again."""
        await self.log.close()
        return await self.reload(is_clean=True, start_offset=start_offset)

    def segment_file(self, base: int, suffix: str = ".log") -> Path:
        return self.directory / f"{base:020d}{suffix}"


def offsets_of(data: bytes) -> list[int]:
    """Every record offset in a run of batches."""
    return [record.offset for at, _ in iterate(data) for record in records(data, at)]


def spans_of(data: bytes) -> list[tuple[int, int]]:
    """First and last offset of every batch."""
    entries = [header_at(data, at) for at, _ in iterate(data)]
    return [(entry.base_offset, entry.last_offset) for entry in entries]


def read_all(log: Log, start: int | None = None) -> bytes:
    """Everything from ``start`` on, read the way a consumer does."""
    data, offset = b"", log.start_offset if start is None else start
    while offset < log.end_offset:
        part = log.read(offset, bytes_max=300, end=log.end_offset, at_least_one=True)
        if not part:
            break
        data += part
        offset = spans_of(part)[-1][1] + 1
    return data


def manager(
    directories: Iterable[Path], files: Files | None = None, **overrides: object
) -> LogManager:
    """A node's logs, with one setting for all topics."""
    return LogManager(
        files or DiskFiles(),
        list(directories),
        config({k.replace("_", "."): v for k, v in overrides.items()}),
        lambda topic: {},
        Clock(),
        intervals=StorageSettings(),
        random=Random(1),
    )


@asynccontextmanager
async def running(logs: LogManager) -> AsyncIterator[LogManager]:
    """Load, run in the background, stop and close."""
    await logs.load()
    task = asyncio.create_task(logs.run())
    try:
        yield logs
    finally:
        task.cancel()
        await asyncio.wait([task])
        await logs.close()
