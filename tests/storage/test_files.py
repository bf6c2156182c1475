"""The real disk behind the door: all or nothing, names, locks."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from barnabas.broker.storage.files import DiskFiles, StorageError

FILES = DiskFiles()


def test_a_file_grows_at_its_end_and_is_read_anywhere(tmp_path: Path) -> None:
    file = FILES.open_append(tmp_path / "f")
    file.append(b"one")
    file.append(bytearray(b"two"))
    file.append(memoryview(b"three"))
    assert (file.size, file.read(3, 3), file.read(6, 99), file.read(99, 1)) == (
        11,
        b"two",
        b"three",
        b"",
    )
    file.truncate(4)
    file.append(b"X")
    file.sync_now()
    file.close()
    file.close()
    assert FILES.read_whole(tmp_path / "f") == b"onetX"


def test_a_small_file_is_replaced_whole(tmp_path: Path) -> None:
    for data in (b"long content", b"new"):
        FILES.write_atomically(tmp_path / "f", data)
    assert FILES.list_directory(tmp_path) == ["f"]
    assert FILES.read_whole(tmp_path / "f") == b"new"


def test_what_is_missing_is_said_to_be_missing(tmp_path: Path) -> None:
    for action in (FILES.read_whole, FILES.size, FILES.list_directory, FILES.sync_file):
        with pytest.raises(StorageError) as error:
            action(tmp_path / "none")
        assert error.value.is_missing
        assert not error.value.is_full
    FILES.unlink(tmp_path / "none")
    FILES.remove_tree(tmp_path / "none")


def test_directories_are_made_with_their_parents_and_removed_with_their_content(
    tmp_path: Path,
) -> None:
    FILES.make_directory(tmp_path / "a" / "b")
    FILES.make_directory(tmp_path / "a" / "b")
    FILES.write_atomically(tmp_path / "a" / "b" / "f", b"")
    FILES.remove_tree(tmp_path / "a")
    assert not FILES.exists(tmp_path / "a")


def test_what_cannot_be_looked_at_is_a_failure_of_the_disk(tmp_path: Path) -> None:
    for look in (FILES.exists, FILES.is_directory):
        with pytest.raises(StorageError, match="could not stat"):
            look(tmp_path / ("x" * 300))


def test_a_lock_is_exclusive_until_it_is_released(tmp_path: Path) -> None:
    lock = FILES.lock(tmp_path / "l")
    with pytest.raises(StorageError) as error:
        FILES.lock(tmp_path / "l")
    assert error.value.is_locked
    lock.release()
    FILES.lock(tmp_path / "l").release()


async def test_work_off_the_loop_runs_to_its_end_when_the_caller_is_cancelled(
    tmp_path: Path,
) -> None:
    path, is_cancelled = tmp_path / "f", threading.Event()

    def work() -> None:
        is_cancelled.wait(60)
        path.write_bytes(b"done")

    task = asyncio.create_task(FILES.off_loop(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    is_cancelled.set()
    await FILES.off_loop(lambda: None)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert FILES.read_whole(path) == b"done"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_told_from_a_broken_one() -> None:
    with pytest.raises(StorageError) as error:
        FILES.open_append(Path("/dev/full")).append(b"x")
    # A device cannot be cut back to its old size, so this one counts as broken.
    assert not error.value.is_full
