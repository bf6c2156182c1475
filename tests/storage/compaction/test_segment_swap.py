"""A swap of compacted segments that the disk interrupts: docs/spec/log.md §3.5, steps 2 to 6."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.storage.files import DiskFiles, StorageError
from tests.storage.compaction.compaction_harness import CompactionHarness


class BusyFiles(DiskFiles):
    """A disk that runs out of descriptors or space in the middle of a swap.

    ``refuses`` says for which rename to a name, or fsync of a directory, it does.
    """

    def __init__(self) -> None:
        self.refuses: Callable[[Path], bool] = lambda path: False
        self.refused = 0

    def _ask(self, path: Path) -> None:
        if self.refuses(path):
            self.refused += 1
            raise StorageError(path, "injected", is_busy=True)

    def rename(self, source: Path, target: Path) -> None:
        self._ask(target)
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._ask(path)
        super().sync_directory(path)


@pytest.fixture
async def harness(tmp_path: Path) -> CompactionHarness:
    """Three keys in segments of which one run makes several new ones."""
    files = BusyFiles()
    harness = await CompactionHarness(tmp_path, files, segment_bytes=400).open()
    for turn in range(2):
        for key in range(6):
            harness.put((b"k%d" % key, b"%d" % turn + b"." * 100))
    harness.roll()
    return harness


def third_swap(path: Path) -> bool:
    """The index of a segment, when its log has been renamed."""
    return path.name.endswith(".index.swap")


def names_of_swaps(path: Path) -> bool:
    """The fsync of the directory in which the names have changed."""
    return path.is_dir() and any(one.suffix == ".swap" for one in path.iterdir())


@pytest.mark.parametrize("refuses", [third_swap, names_of_swaps])
async def test_a_swap_that_is_put_off_leaves_nothing_for_a_start_to_put_in_place(
    harness: CompactionHarness, refuses: Callable[[Path], bool]
) -> None:
    files = harness.files
    assert isinstance(files, BusyFiles)
    before, view = harness.held(), harness.view()
    files.refuses = refuses
    assert not await harness.clean()
    assert files.refused
    assert harness.logs.is_complete
    assert harness.files_named(".swap") + harness.files_named(".cleaned") == []
    assert harness.held() == before
    files.refuses = lambda path: False
    assert await harness.clean()
    assert harness.view() == view
    assert len(harness.held()) < len(before)
    await harness.restart()
    assert harness.view() == view
    await harness.close()


async def test_a_swap_that_can_neither_be_made_nor_taken_back_takes_its_directory_offline(
    harness: CompactionHarness,
) -> None:
    files = harness.files
    assert isinstance(files, BusyFiles)
    files.refuses = lambda path: third_swap(path) or path.name.endswith(".cleaned")
    assert not await harness.clean()
    assert not harness.logs.is_complete
    files.refuses = lambda path: False
    await harness.close()
