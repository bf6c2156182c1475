"""A disk in memory with a page cache: what was not synced may be gone after a power cut.

Source: docs/spec/reliability.md §5. What a power cut leaves of a file's unsynced bytes is a prefix,
or some sectors of 512 bytes with zeros or what was there before in place of the others; names
survive when their directory was synced since, or by luck. A failed fsync is told once: what it
should have written counts as clean from then on and never reaches the disk, as on Linux.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from barnabas.broker.storage.files import Data, StorageError

T = TypeVar("T")

SECTOR_BYTES = 512


class Content:
    """The bytes of one file: as programs see them, and how many of them are safe."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self.data = bytearray()
        self.synced = b""
        self.modified_ms = clock()
        self._lost: list[tuple[int, int]] = []
        """What a failed fsync should have written, and the next will not write."""

    def touch(self) -> None:
        self.modified_ms = self._clock()

    def sync(self) -> None:
        safe = bytearray(self.data)
        for begin, end in self._lost:
            safe[begin:end] = bytes(end - begin)
        self.synced = bytes(safe)

    def fail_to_sync(self) -> None:
        """An fsync that failed: the pages stay in memory, and nobody writes them any more."""
        self._lost.append((self._unchanged(), len(self.data)))

    def cut(self, size: int) -> None:
        """What is behind ``size`` goes, and what is written there later is written anew."""
        del self.data[size:]
        self._lost = [(begin, min(end, size)) for begin, end in self._lost if begin < size]

    def copy(self) -> Content:
        """The same, for another process."""
        twin = Content(self._clock)
        twin.data += self.data
        twin.synced = self.synced
        twin._lost = list(self._lost)
        twin.modified_ms = self.modified_ms
        return twin

    def survivor(self, rng: random.Random) -> Content:
        """What is left: the synced bytes, and some of what was changed since."""
        left = Content(self._clock)
        left.modified_ms = self.modified_ms
        kept = self._unchanged()
        if kept == len(self.synced) and rng.random() < 0.5:
            left.data = self.data[: rng.randint(kept, len(self.data))]
        else:
            left.data = self._sectors(kept, rng)
        left.sync()
        return left

    def _unchanged(self) -> int:
        """So many bytes are still as they were synced."""
        low, high = 0, min(len(self.synced), len(self.data))
        while low < high:
            middle = (low + high + 1) // 2
            if self.data[low:middle] == self.synced[low:middle]:
                low = middle
            else:
                high = middle - 1
        return low

    def _sectors(self, kept: int, rng: random.Random) -> bytearray:
        """Each sector behind ``kept`` as it is, as it was, or never written; a size of two."""
        size = rng.choice((len(self.synced), len(self.data)))
        found = bytearray(self.data[: min(kept, size)])
        while len(found) < size:
            end = min(size, (len(found) // SECTOR_BYTES + 1) * SECTOR_BYTES)
            source = rng.choice((self.data, self.synced, b""))
            found += bytes(source[len(found) : end]).ljust(end - len(found), b"\0")
        return found


class SimulatedFile:
    """An open file of the simulated disk."""

    def __init__(self, disk: SimulatedFiles, path: Path, content: Content) -> None:
        self._disk = disk
        self._content = content
        self.path = path
        self.size = len(content.data)

    def append(self, data: Data) -> None:
        if data:
            self._disk.take_space(self.path)
        self._content.cut(self.size)
        self._content.data += data
        self._content.touch()
        self.size = len(self._content.data)

    def read(self, position: int, count: int) -> bytes:
        return bytes(self._content.data[position : position + count])

    def send(self, descriptor: int, position: int, count: int) -> int:
        raise AssertionError("simulated connections have no sockets")

    def truncate(self, size: int) -> None:
        assert size <= self.size
        self._content.cut(size)
        self._content.touch()
        self.size = size

    async def sync(self) -> None:
        await self._disk.off_loop(self.sync_now)

    def sync_now(self) -> None:
        self._disk.sync_content(self.path, self._content)

    def close(self) -> None:
        return None


class SimulatedLock:
    """A locked name, free again after a crash."""

    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path
        locked.add(path)

    def release(self) -> None:
        self._locked.discard(self._path)


class SimulatedFiles:
    """All files of one simulated machine; outlives the process that uses them."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._files: dict[Path, Content] = {}
        self._directories: set[Path] = {Path("/")}
        self._lock = threading.Lock()
        self._safe_files: dict[Path, Content] = {}
        self._safe_directories: set[Path] = {Path("/")}
        self._unsafe_moves: dict[Path, Path] = {}
        """Directories renamed since their parent was synced: new path and old one."""
        self._locked: set[Path] = set()
        self.is_full = False
        """Nothing can be written; what is there can be read and removed."""
        self.syncs_to_fail = 0
        """So many of the next fsyncs of a file fail."""

    def take_space(self, path: Path) -> None:
        """Raises StorageError while the disk is full."""
        if self.is_full:
            raise StorageError(path, "no space left", is_full=True)

    def after_power_cut(self, rng: random.Random) -> SimulatedFiles:
        """The disk as the next process finds it; this object stays with the dying one."""
        found = SimulatedFiles(self._clock)
        found.is_full = self.is_full
        kept = {path for path in self._directories if rng.random() < 0.5}
        found._directories = self._safe_directories | kept
        names = {p: c for p, c in self._files.items() if rng.random() < 0.5} | self._safe_files
        for path, content in sorted(names.items()):
            if path.parent in found._directories:
                found._files[path] = content.survivor(rng)
        found._safe_files = dict(found._files)
        found._safe_directories = set(found._directories)
        return found

    def after_kill(self) -> SimulatedFiles:
        """The disk as the next process finds it when only the last one died: nothing is lost."""
        found = SimulatedFiles(self._clock)
        found._directories = set(self._directories)
        found._safe_directories = set(self._safe_directories)
        copies = {id(c): c.copy() for c in (*self._files.values(), *self._safe_files.values())}
        found._files = {path: copies[id(c)] for path, c in self._files.items()}
        found._safe_files = {path: copies[id(c)] for path, c in self._safe_files.items()}
        found._unsafe_moves = dict(self._unsafe_moves)
        return found

    def open_append(self, path: Path) -> SimulatedFile:
        self._need(path.parent)
        content = self._files.get(path)
        if content is None:
            self.take_space(path)
            content = self._files[path] = Content(self._clock)
        return SimulatedFile(self, path, content)

    def open_existing(self, path: Path) -> SimulatedFile:
        return SimulatedFile(self, path, self._content(path))

    def read_whole(self, path: Path) -> bytes:
        return bytes(self._content(path).data)

    def write_atomically(self, path: Path, data: Data, *, is_synced: bool = True) -> None:
        self._need(path.parent)
        self.take_space(path)
        content = Content(self._clock)
        content.data += data
        self._files[path] = content
        if is_synced:
            content.sync()
            self.sync_directory(path.parent)

    def sync_file(self, path: Path) -> None:
        self.sync_content(path, self._content(path))

    def sync_content(self, path: Path, content: Content) -> None:
        """Raises StorageError where the disk fails."""
        if self.syncs_to_fail and content.data != content.synced:
            self.syncs_to_fail -= 1
            content.fail_to_sync()
            raise StorageError(path, "injected: input/output error")
        content.sync()

    def sync_directory(self, path: Path) -> None:
        self._need(path)
        for target, source in list(self._unsafe_moves.items()):
            if target.parent == path:
                self._safe_files = {
                    _moved(p, source, target): c for p, c in list(self._safe_files.items())
                }
                self._safe_directories = {_moved(p, source, target) for p in self._safe_directories}
                del self._unsafe_moves[target]
        self._safe_directories.update(d for d in list(self._directories) if d.parent == path)
        self._safe_directories.add(path)
        for name in [p for p in list(self._safe_files) if p.parent == path]:
            del self._safe_files[name]
        self._safe_files.update({p: c for p, c in list(self._files.items()) if p.parent == path})

    def make_directory(self, path: Path, *, is_synced: bool = True) -> None:
        for directory in (*reversed(path.parents), path):
            self._directories.add(directory)
            if is_synced:
                self._safe_directories.add(directory)

    def rename(self, source: Path, target: Path) -> None:
        if source in self._files:
            self._files[target] = self._files.pop(source)
            return
        self._need(source)
        self._files = {_moved(p, source, target): c for p, c in self._files.items()}
        self._directories = {_moved(p, source, target) for p in self._directories}
        self._unsafe_moves[target] = self._unsafe_moves.pop(source, source)

    def unlink(self, path: Path) -> None:
        self._files.pop(path, None)

    def remove_tree(self, path: Path) -> None:
        self._files = {p: c for p, c in self._files.items() if path not in p.parents}
        self._directories = {p for p in self._directories if p != path and path not in p.parents}

    def list_directory(self, path: Path) -> list[str]:
        self._need(path)
        here = [p for p in (*self._files, *self._directories) if p.parent == path and p != path]
        return sorted(p.name for p in here)

    def exists(self, path: Path) -> bool:
        return path in self._files or path in self._directories

    def is_directory(self, path: Path) -> bool:
        return path in self._directories

    def size(self, path: Path) -> int:
        return len(self._content(path).data)

    def modified_ms(self, path: Path) -> int:
        return self._content(path).modified_ms

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        self._content(path).modified_ms = modified_ms

    def disk_bytes(self, path: Path) -> tuple[int, int]:
        return 1 << 40, 0 if self.is_full else 1 << 40

    def lock(self, path: Path) -> SimulatedLock:
        if path in self._locked:
            raise StorageError(path, "is locked by another process")
        return SimulatedLock(self._locked, path)

    async def off_loop(self, work: Callable[[], T]) -> T:
        def alone() -> T:
            # On a loop in real time this runs on several threads, which one disk in memory is
            # not made for.
            with self._lock:
                return work()

        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, alone))

    def _content(self, path: Path) -> Content:
        content = self._files.get(path)
        if content is None:
            raise StorageError(path, "no such file", is_missing=True)
        return content

    def _need(self, directory: Path) -> None:
        if directory not in self._directories:
            raise StorageError(directory, "no such directory", is_missing=True)


def _moved(path: Path, source: Path, target: Path) -> Path:
    if path == source:
        return target
    return target / path.relative_to(source) if source in path.parents else path
