"""A simulated disk whose process dies before its n-th change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from barnabas.broker.storage.files import Data
from tests.sim.simulated_files import Content, SimulatedFile, SimulatedFiles


class Died(BaseException):
    """The process ended here."""


class StoppingFiles(SimulatedFiles):
    """Counts what changes the disk; raises Died instead of change number ``stop_before``."""

    def __init__(self, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self.changes = 0
        self.stop_before: int | None = None
        self.is_dead = False

    def step(self) -> None:
        if self.is_dead:
            raise Died
        if self.stop_before is not None and self.changes >= self.stop_before:
            self.is_dead = True
            raise Died
        self.changes += 1

    def arm(self, stop_before: int | None) -> None:
        self.changes, self.stop_before, self.is_dead = 0, stop_before, False

    def open_append(self, path: Path) -> SimulatedFile:
        if path not in self._files:
            self.step()
        super().open_append(path)
        return StoppingFile(self, path, self._files[path])

    def write_atomically(self, path: Path, data: Data, *, is_synced: bool = True) -> None:
        self.step()
        super().write_atomically(path, data, is_synced=is_synced)

    def sync_file(self, path: Path) -> None:
        self.step()
        super().sync_file(path)

    def sync_directory(self, path: Path) -> None:
        self.step()
        super().sync_directory(path)

    def rename(self, source: Path, target: Path) -> None:
        self.step()
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        if path in self._files:
            self.step()
        super().unlink(path)


class StoppingFile(SimulatedFile):
    """One of its files."""

    def __init__(self, disk: StoppingFiles, path: Path, content: Content) -> None:
        super().__init__(disk, path, content)
        self._stopping = disk

    def append(self, data: Data) -> None:
        self._stopping.step()
        super().append(data)

    def truncate(self, size: int) -> None:
        self._stopping.step()
        super().truncate(size)

    def sync_now(self) -> None:
        self._stopping.step()
        super().sync_now()


def copied(disk: StoppingFiles) -> StoppingFiles:
    """The disk as the next process finds it after a kill: all that was written is there."""
    found = StoppingFiles(disk._clock)
    found._files = dict(disk._files)
    found._directories = set(disk._directories)
    found._safe_files = dict(disk._safe_files)
    found._safe_directories = set(disk._safe_directories)
    return found


def cut(disk: StoppingFiles, seed: int) -> StoppingFiles:
    """The disk after a power cut."""
    survived = disk.after_power_cut(Random(seed))
    found = StoppingFiles(disk._clock)
    found._files = survived._files
    found._directories = survived._directories
    found._safe_files = survived._safe_files
    found._safe_directories = survived._safe_directories
    return found
