"""What a node tells of itself that takes an answer of somebody else: looked at now and then.

A scrape must wait for nobody; so free bytes of disks and the answer of ZooKeeper are asked for
beside it. Only a node with a metrics listener does so. Source: docs/spec/console.md §2.2 and §6.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.broker.runtime.latency import Latency
from barnabas.client.zookeeper.interface import SessionState, ZooKeeper, ZooKeeperError
from barnabas.coordinator.ports import INCREMENT, SNAPSHOT

LOOK_S: Final = 5.0
_ASKED: Final = "/controller"
"""Any znode does: the answer counts, not what it says."""


class SnapshotTimes(NamedTuple):
    """What standbys have on disk of the state that they follow."""

    without: int
    """Offsets partitions without any: their log is short, or read whole."""
    oldest_s: float | None
    """When the newest file of the one was written that is worst off, seconds since 1970."""


class NodeSampler:
    """The last samples; None for what was not seen yet."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        directories: Sequence[Path],
        is_controller: Callable[[], bool],
        now_ms: Callable[[], int],
        standby_directories: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        self._zookeeper = zookeeper
        self._directories = directories
        self._is_controller = is_controller
        self._now_ms = now_ms
        self._standby_directories = standby_directories
        self.zookeeper_answers = Latency()
        self.zookeeper_last_ms: int | None = None
        """When ZooKeeper answered last."""
        self.zookeeper_last_s: float | None = None
        """How long that took."""
        self.free_bytes: dict[Path, int] = {}
        """By log directory, what a user without privileges may still write."""
        self.snapshots = SnapshotTimes(0, None)
        """Of the standbys' offsets partitions."""
        self.controller_since_ms: int | None = None
        """Since when this node is the controller, to LOOK_S; None when it is not."""

    @property
    def is_connected(self) -> bool:
        """The session with ZooKeeper is up."""
        return self._zookeeper.state is SessionState.CONNECTED

    @property
    def session(self) -> tuple[str, int]:
        """The state of the session, and its time-out in ms."""
        return self._zookeeper.state.name.lower(), self._zookeeper.session_timeout_ms

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ask_zookeeper(), name="answers of ZooKeeper")
            tasks.create_task(self._look(), name="disks and role")

    async def _ask_zookeeper(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            began = clock()
            try:
                await self._zookeeper.exists(_ASKED)
            except ZooKeeperError:
                pass  # what it is like is in its state
            else:
                self.zookeeper_last_s = clock() - began
                self.zookeeper_last_ms = self._now_ms()
                self.zookeeper_answers.observe(self.zookeeper_last_s)
            await asyncio.sleep(LOOK_S)

    async def _look(self) -> None:
        while True:
            if not self._is_controller():
                self.controller_since_ms = None
            elif self.controller_since_ms is None:
                self.controller_since_ms = self._now_ms()
            for directory in self._directories:  # in a thread: a dead disk does not answer
                free = await asyncio.to_thread(_free_bytes, directory)
                if free is not None:
                    self.free_bytes[directory] = free
            standbys = self._standby_directories()
            self.snapshots = await asyncio.to_thread(_snapshot_times, standbys)
            await asyncio.sleep(LOOK_S)


def _snapshot_times(directories: Sequence[Path]) -> SnapshotTimes:
    times = list(map(_newest, directories))
    found = [time for time in times if time is not None]
    return SnapshotTimes(len(times) - len(found), min(found, default=None))


def _newest(directory: Path) -> float | None:
    """When the last file of a snapshot was written, seconds since 1970."""
    times = []
    for name in (SNAPSHOT, INCREMENT):
        with contextlib.suppress(OSError):  # mostly that there is none
            times.append((directory / name).stat().st_mtime)
    return max(times, default=None)


def _free_bytes(directory: Path) -> int | None:
    try:
        found = os.statvfs(directory)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
