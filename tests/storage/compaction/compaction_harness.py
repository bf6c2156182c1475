"""What the tests of compaction share: a log of a node, and a cleaner that is stepped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from barnabas.broker.settings.cleaner_settings import CleanerSettings
from barnabas.broker.storage.compaction.cleaner import LogCleaner
from barnabas.broker.storage.compaction.worker import CompactionWorker, LoopWorker
from barnabas.broker.storage.files import DiskFiles, Files
from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.protocol.records.batch import build_batch, is_control, iterate, producer_id, records
from barnabas.protocol.records.control import Marker, encode_marker
from tests.storage.log_harness import T0, manager, read_all

Pair = tuple[bytes | None, bytes | None]
DAY_MS = 86_400_000


class CompactionHarness:
    """One log, compacted when told; ``now_ms`` is its clock."""

    def __init__(
        self,
        directory: Path,
        files: Files | None = None,
        *,
        settings: CleanerSettings | None = None,
        worker: Callable[[Files], CompactionWorker] = LoopWorker,
        **overrides: object,
    ) -> None:
        self.directory = directory
        self.files = files or DiskFiles()
        self.settings = settings or CleanerSettings()
        self.overrides: dict[str, object] = {
            "cleanup_policy": "compact",
            "min_cleanable_dirty_ratio": 0,
            **overrides,
        }
        self.now_ms = T0
        self.committed: int | None = None
        self._make_worker = worker

    async def open(self) -> CompactionHarness:
        self.logs: LogManager = manager([self.directory], self.files, **self.overrides)
        await self.logs.load()
        self.log: Log = self.logs.create("t", 0, None)
        self.worker = self._make_worker(self.files)
        self.cleaner = LogCleaner(
            self.files, self.logs, self.settings, self._committed, lambda: self.now_ms, self._work
        )
        return self

    def _work(self) -> CompactionWorker:
        return self.worker

    def _committed(self, topic: str, partition: int) -> int:
        log = self.logs.get(topic, partition)
        assert log is not None
        return log.end_offset if self.committed is None else self.committed

    async def close(self) -> None:
        await self.worker.close()
        await self.logs.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    def put(self, *pairs: Pair, **fields: Any) -> None:
        """Append one batch."""
        built = build_batch(list(pairs), timestamp_ms=fields.pop("time", self.now_ms), **fields)
        self.log.append(built, leader_epoch=0, is_client=not fields.get("is_control"))

    def end_transaction(self, producer_id: int, marker: Marker) -> None:
        self.put(
            encode_marker(marker, 0),
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )

    def roll(self) -> None:
        self.log.roll()

    async def clean(self) -> bool:
        """One pass, if one is due."""
        return await self.cleaner.clean_next(self.worker)

    @property
    def first_dirty(self) -> int:
        return self.cleaner._checkpoints.first_dirty(self.log)

    def held(self) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of every record of data."""
        return [(offset, key, value) for offset, _, key, value in self.told()]

    def told(self, data: bytes | None = None) -> list[tuple[int, int, bytes | None, bytes | None]]:
        """Offset, producer id, key and value of every record of data, in ``data`` or the log."""
        data = read_all(self.log) if data is None else data
        return [
            (record.offset, producer_id(data, at), record.key, record.value)
            for at, _ in iterate(data)
            if not is_control(data, at)
            for record in records(data, at)
        ]

    def offsets(self) -> list[int]:
        return [offset for offset, _, _ in self.held()]

    def view(self) -> dict[bytes | None, bytes]:
        """What a reader from the start ends up with."""
        return newest([(key, value) for _, key, value in self.held()])

    def files_named(self, end: str) -> list[str]:
        names = self.files.list_directory(self.log.directory)
        return [name for name in names if name.endswith(end)]


def newest(pairs: Sequence[Pair]) -> dict[bytes | None, bytes]:
    """The last value of each key that has one."""
    values: dict[bytes | None, bytes] = {}
    for key, value in pairs:
        values.pop(key, None)
        if value is not None:
            values[key] = value
    return values
