"""The only door to the disk: what storage asks of a file system, and the real one.

Source: docs/spec/log.md §3.1 (what must be fsynced, in which order) and
docs/spec/reliability.md §5.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

from .storage_error import StorageError, failure

__all__ = ["Data", "DiskFiles", "File", "Files", "Lock", "StorageError", "failure"]

T = TypeVar("T")
Data = bytes | bytearray | memoryview

_OF_THE_DISK: Final = frozenset({errno.EIO, errno.EUCLEAN, errno.ESTALE})
_LOCKED: Final = frozenset({errno.EAGAIN, errno.EACCES})


class File(Protocol):
    """One open file that grows at its end."""

    path: Path
    size: int
    """Bytes in the file, as far as this object wrote or cut it."""

    def append(self, data: Data) -> None:
        """Write all of ``data`` at the end, or nothing: raises StorageError with the old size."""

    def read(self, position: int, count: int) -> bytes:
        """Up to ``count`` bytes from ``position``; fewer only at the end of the file."""

    def send(self, descriptor: int, position: int, count: int) -> int:
        """Send up to ``count`` bytes from ``position`` to a socket, unread: how many went.

        0 at the end of the file. Raises OSError where the socket refuses, BlockingIOError when
        it is full, StorageError for the file.
        """

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes, which must not exceed what it holds."""

    async def sync(self) -> None:
        """Make the content survive a power cut, away from the event loop.

        After a StorageError the content is unknown: never try again and assume success.
        """

    def sync_now(self) -> None:
        """As :meth:`sync`, blocking: only for work that is already away from the loop."""

    def close(self) -> None:
        """Give the file back; harmless when done twice."""


class Lock(Protocol):
    """A file locked for this process."""

    def release(self) -> None:
        """Let others lock it."""


class Files(Protocol):
    """A file system; every method raises StorageError when the disk refuses."""

    def open_append(self, path: Path) -> File:
        """The file at ``path``, created when missing, readable anywhere, written at its end."""

    def open_existing(self, path: Path) -> File:
        """As :meth:`open_append`, but StorageError with ``is_missing`` where there is no file."""

    def read_whole(self, path: Path) -> bytes:
        """All bytes of a small file; StorageError with ``is_missing`` where there is none."""

    def write_atomically(self, path: Path, data: Data, *, is_synced: bool = True) -> None:
        """Replace a small file: a reader, now or after a crash, sees all of it or the old one.

        Without ``is_synced`` that holds for a killed process, not for a power cut.
        """

    def sync_file(self, path: Path) -> None:
        """Make the content of a closed file survive a power cut."""

    def sync_directory(self, path: Path) -> None:
        """Make creations, renames and deletions in ``path`` survive a power cut."""

    def make_directory(self, path: Path, *, is_synced: bool = True) -> None:
        """Create a directory and its parents; none of them need be missing."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or directory another name; an existing target file is replaced."""

    def unlink(self, path: Path) -> None:
        """Remove a file; a missing one is fine."""

    def remove_tree(self, path: Path) -> None:
        """Remove a directory and all it holds; a missing one is fine."""

    def list_directory(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory of that name."""

    def is_directory(self, path: Path) -> bool:
        """Whether there is a directory of that name."""

    def size(self, path: Path) -> int:
        """Bytes in a file."""

    def modified_ms(self, path: Path) -> int:
        """Wall-clock time of the last change, in milliseconds."""

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Date the last change of a file otherwise."""

    def disk_bytes(self, path: Path) -> tuple[int, int]:
        """Size of the file system that holds ``path``, and how much of it is left for us."""

    def lock(self, path: Path) -> Lock:
        """Lock a file for the life of this process; StorageError when another holds it."""

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run blocking work away from the event loop.

        Once started it runs to its end, even when the caller is cancelled.
        """


@contextlib.contextmanager
def _refusals(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise failure(path, what, error) from error


def _mode(path: Path) -> int | None:
    """What kind of file there is; None where there is none. Raises StorageError.

    Not Path.exists() nor Path.is_dir(): since Python 3.14 they take every failure of a disk for
    absence, and what is taken to be absent is made anew (docs/decisions/0009).
    """
    with _refusals(path, "could not stat"):
        try:
            return path.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None


class DiskFile:
    """A file of the operating system, written with one system call an append."""

    __slots__ = ("_descriptor", "path", "size")

    def __init__(self, path: Path, creates: int = os.O_CREAT) -> None:
        self.path = path
        self._descriptor = -1
        try:
            self._descriptor = os.open(path, os.O_RDWR | creates | os.O_APPEND, 0o644)
            self.size = os.fstat(self._descriptor).st_size
        except OSError as error:
            raise failure(path, "could not open", error) from error

    def append(self, data: Data) -> None:
        """Write all or nothing; a short write is undone."""
        try:
            written = os.write(self._descriptor, data)
            if written != len(data):
                self._finish(data, written)
        except OSError as error:
            self._undo()
            raise failure(self.path, "could not write", error) from error
        self.size += len(data)

    def _finish(self, data: Data, written: int) -> None:
        rest = memoryview(data)
        while written < len(data):
            written += os.write(self._descriptor, rest[written:])

    def _undo(self) -> None:
        """Cut what a failed write left behind; when even that fails the error is not "full"."""
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError as error:
            raise StorageError(self.path, f"could not undo a write: {error}") from error

    def read(self, position: int, count: int) -> bytes:
        """One positioned read, repeated only when a signal cut it short."""
        try:
            data = os.pread(self._descriptor, count, position)
            while len(data) < count and position + len(data) < self.size:
                more = os.pread(self._descriptor, count - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise failure(self.path, "could not read", error) from error
        return data

    def send(self, descriptor: int, position: int, count: int) -> int:
        """One sendfile; what is wrong with the disk is told from what is wrong with the peer."""
        try:
            return os.sendfile(descriptor, self._descriptor, position, count)
        except OSError as error:
            if error.errno in _OF_THE_DISK:
                raise failure(self.path, "could not send", error) from error
            raise

    def truncate(self, size: int) -> None:
        """Cut the file; durable after the next sync."""
        assert 0 <= size <= self.size, f"{self.path}: {size} > {self.size}"
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise failure(self.path, "could not truncate", error) from error
        self.size = size

    async def sync(self) -> None:
        """Fsync in a thread; a closed loop waits for it."""
        await _off_loop(self.sync_now)

    def sync_now(self) -> None:
        """Fsync here: size and content."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            # "No space" from fsync means that written bytes are lost: never the healing kind.
            raise StorageError(self.path, f"could not fsync: {error.strerror}") from error

    def close(self) -> None:
        """Close the descriptor once."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class DiskLock:
    """An exclusive flock, which the kernel drops when the process dies."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise failure(path, "could not open", error) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in _LOCKED:
                raise failure(path, "could not lock", error) from error
            raise StorageError(path, "is locked by another process", is_locked=True) from error

    def release(self) -> None:
        """Close the descriptor, and with it the lock."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class DiskFiles:
    """The operating system's files."""

    def open_append(self, path: Path) -> File:
        """Open with O_APPEND, so that no position can go wrong."""
        return DiskFile(path)

    def open_existing(self, path: Path) -> File:
        """Open without O_CREAT."""
        return DiskFile(path, creates=0)

    def read_whole(self, path: Path) -> bytes:
        """Read at once."""
        with _refusals(path, "could not read"):
            return path.read_bytes()

    def write_atomically(self, path: Path, data: Data, *, is_synced: bool = True) -> None:
        """Temporary name, fsync, rename, fsync of the directory."""
        temporary = path.with_name(path.name + ".tmp")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                if is_synced:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()  # on a full disk it has taken what was left
            raise failure(path, "could not write", error) from error
        if is_synced:
            self.sync_directory(path.parent)

    def sync_file(self, path: Path) -> None:
        """Fsync through a descriptor of its own."""
        _sync_path(path, os.O_RDONLY)

    def sync_directory(self, path: Path) -> None:
        """Fsync the directory itself."""
        _sync_path(path, os.O_RDONLY | os.O_DIRECTORY)

    def make_directory(self, path: Path, *, is_synced: bool = True) -> None:
        """Create what is missing, from the top."""
        if self.is_directory(path):
            return
        if path.parent != path:
            self.make_directory(path.parent, is_synced=is_synced)
        try:
            path.mkdir(exist_ok=True)
        except OSError as error:
            raise failure(path, "could not create", error) from error
        if is_synced:
            self.sync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        """Rename within one file system."""
        with _refusals(source, f"could not rename to {target.name}"):
            source.rename(target)

    def unlink(self, path: Path) -> None:
        """Unlink, if it is there."""
        with _refusals(path, "could not delete"):
            path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove recursively, following no links."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failure(path, "could not delete", error) from error

    def list_directory(self, path: Path) -> list[str]:
        """List and sort."""
        with _refusals(path, "could not list"):
            return sorted(entry.name for entry in path.iterdir())

    def exists(self, path: Path) -> bool:
        """Look without opening."""
        return _mode(path) is not None

    def is_directory(self, path: Path) -> bool:
        """Look without opening."""
        mode = _mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def size(self, path: Path) -> int:
        """Stat the path."""
        with _refusals(path, "could not stat"):
            return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        """Stat the path."""
        with _refusals(path, "could not stat"):
            return path.stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set both times of the inode."""
        with _refusals(path, "could not date"):
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def disk_bytes(self, path: Path) -> tuple[int, int]:
        """Left is what an unprivileged process may still write."""
        with _refusals(path, "could not stat"):
            return shutil.disk_usage(path)[::2]

    def lock(self, path: Path) -> Lock:
        """Lock without waiting."""
        return DiskLock(path)

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run in the loop's executor."""
        return await _off_loop(work)


def _sync_path(path: Path, flags: int) -> None:
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise failure(path, "could not open", error) from error
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise StorageError(path, f"could not fsync: {error.strerror}") from error
    finally:
        os.close(descriptor)


async def _off_loop(work: Callable[[], T]) -> T:
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, work))
