"""A disk that fails when told to: the n-th call of a kind, or every one while it is full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from barnabas.broker.storage.files import Data, DiskFiles, File, StorageError

T = TypeVar("T")


class FaultyFiles(DiskFiles):
    """The real disk with failures; ``fail`` maps a kind of call to the counts that fail.

    Kinds: write, fsync, read, rename, create, checkpoint. ``is_full`` fails all that needs space.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.fail: dict[str, set[int]] = {}
        self.is_full = False
        self.is_full_after: int | None = None

    def fail_next(self, kind: str, after: int = 0) -> None:
        """The next call of a kind fails, or the one ``after`` that many."""
        self.fail.setdefault(kind, set()).add(self.counts[kind] + 1 + after)

    def check(self, path: Path, kind: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] in self.fail.get(kind, ()):
            raise StorageError(path, f"injected failure of {kind} {self.counts[kind]}")
        if self.is_full and kind in ("write", "create", "checkpoint"):
            raise StorageError(path, "injected: no space", is_full=True)

    def open_append(self, path: Path) -> File:
        if not path.exists():
            self.check(path, "create")
        return FaultyFile(self, super().open_append(path))

    def open_existing(self, path: Path) -> File:
        return FaultyFile(self, super().open_existing(path))

    def write_atomically(self, path: Path, data: Data, *, is_synced: bool = True) -> None:
        self.check(path, "checkpoint")
        super().write_atomically(path, data, is_synced=is_synced)

    def rename(self, source: Path, target: Path) -> None:
        self.check(source, "rename")
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self.check(path, "fsync")
        super().sync_directory(path)

    def disk_bytes(self, path: Path) -> tuple[int, int]:
        total, free = super().disk_bytes(path)
        return total, 0 if self.is_full else free

    async def off_loop(self, work: Callable[[], T]) -> T:
        return await super().off_loop(work)


class FaultyFile:
    """One open file of the faulty disk."""

    def __init__(self, files: FaultyFiles, file: File) -> None:
        self._files = files
        self._file = file
        self.path = file.path

    @property
    def size(self) -> int:
        return self._file.size

    @size.setter
    def size(self, size: int) -> None:
        self._file.size = size

    def append(self, data: Data) -> None:
        self._files.check(self.path, "write")
        self._file.append(data)

    def read(self, position: int, count: int) -> bytes:
        self._files.check(self.path, "read")
        return self._file.read(position, count)

    def send(self, descriptor: int, position: int, count: int) -> int:
        self._files.check(self.path, "read")
        return self._file.send(descriptor, position, count)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    async def sync(self) -> None:
        await self._files.off_loop(self.sync_now)

    def sync_now(self) -> None:
        self._files.check(self.path, "fsync")
        self._file.sync_now()

    def close(self) -> None:
        self._file.close()
