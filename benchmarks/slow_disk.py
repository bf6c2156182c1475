"""A disk of one's own that stands still on command, while all others go on.

A small ext4 file system on a loop device, frozen and thawed. A process that writes there waits for
it, as it would behind others' writes, and does everything else. Source: FIFREEZE in linux/fs.h.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

IMAGE_BYTES: Final = 128 << 20
"""ZooKeeper reserves 64 MiB for its log at once."""
_SCRIPT: Final = """
import fcntl, os, sys, time
disk = os.open(sys.argv[1], os.O_RDONLY)
still, free, times = float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
for _ in range(times):
    fcntl.ioctl(disk, 0xC0045877, 0)
    try:
        time.sleep(still)
    finally:
        fcntl.ioctl(disk, 0xC0045878, 0)
    time.sleep(free)
"""
"""In a process of its own: were ours killed in between, who writes there could never be ended."""


def why_not() -> str:
    """Why there can be no such disk here; empty when there may be."""
    if os.geteuid() != 0:
        return "needs root to mount a loop device"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    return ""


class SlowDisk:
    """Mounted at ``root`` while the ``with`` lasts; whoever writes there must have ended by then.

    ``home`` is an existing directory on another disk.
    """

    def __init__(self, home: Path) -> None:
        self.root = home / "slow-disk"
        self._image = home / "slow-disk.image"

    def __enter__(self) -> Self:
        """Make and mount it; raises CalledProcessError where that is not allowed."""
        self.root.mkdir()
        with self._image.open("wb") as image:
            image.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-m", "0", str(self._image))
        _run("mount", "-o", "loop", str(self._image), str(self.root))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Unmount and remove it."""
        _run("umount", "--lazy", str(self.root))
        self._image.unlink()
        self.root.rmdir()

    def stand_still(self, seconds: float, free_s: float = 0.0, times: int = 1) -> None:
        """Every write waits for so long, so many times with a pause; returns after the last."""
        numbers = [str(seconds), str(free_s), str(times)]
        command = [sys.executable, "-I", "-S", "-c", _SCRIPT, str(self.root), *numbers]
        subprocess.run(command, check=True, start_new_session=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
