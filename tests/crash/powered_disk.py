"""A small ext4 file system on a loop device whose power can be cut with one ioctl.

What was fsynced is there after :meth:`PoweredDisk.cut` and a new mount; of the rest, what the
kernel had written by chance. Source: docs/spec/reliability.md §4 (EXT4_IOC_SHUTDOWN).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
from enum import IntEnum
from pathlib import Path
from struct import pack
from typing import Final

IMAGE_BYTES: Final = 32 << 20
ORDERED: Final = "errors=continue"
WRITEBACK: Final = "errors=continue,data=writeback,nodelalloc"
"""Sizes may reach the disk before the data: torn tails, zeros, blocks that were another file's."""

_SHUTDOWN: Final = 0x8004587D
_NEW_MOUNTS: Final = 0x00020000
_PRIVATE: Final = 0x00044000
_DETACH: Final = 2
_libc = ctypes.CDLL(None, use_errno=True)


class Cut(IntEnum):
    """How a file system is stopped: the flag of the ioctl."""

    FREEZE = 0
    """After writing everything: only the process notices."""
    LOG_FLUSH = 1
    """The journal is written, file contents are not."""
    NO_LOG_FLUSH = 2
    """Nothing is written any more: a power cut."""


REMEDY_OF_NONE: Final = "run as root on a machine with loop devices, e2fsprogs and mount"


def why_not() -> str:
    """Why there can be no such disk here; empty when there can."""
    if os.geteuid() != 0:
        return "needs root to mount a loop device"
    for tool in ("mkfs.ext4", "losetup"):
        if shutil.which(tool) is None:
            return f"needs {tool}"
    if not Path("/dev/loop-control").exists():
        return "needs loop devices"
    return ""


def hide_mounts() -> None:
    """Give this process mounts of its own: a container that starts would keep copies of them.

    A file system that somebody else still has mounted stays without power after an unmount.
    """
    _check(_libc.unshare(_NEW_MOUNTS), "unshare")
    _check(_libc.mount(b"none", b"/", None, _PRIVATE, None), "make mounts private")


class PoweredDisk:
    """An image, its loop device and its mount point below ``home``, a directory on a real disk."""

    def __init__(self, home: Path, *, image_bytes: int = IMAGE_BYTES) -> None:
        self._image = home / "disk.image"
        self.root = home / "disk"
        """Where it is mounted."""
        self.root.mkdir()
        with self._image.open("wb") as image:
            image.truncate(image_bytes)
        self._device = _run("losetup", "--find", "--show", str(self._image))
        # Detached as soon as nobody has it open: also when this process is killed.
        self._held = os.open(self._device, os.O_RDONLY)
        _run("losetup", "--detach", self._device)
        self._is_mounted = False

    def format(self) -> None:
        """Make the file system anew; nothing on it remains."""
        _run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "discard", self._device)

    def mount(self, options: str = ORDERED) -> None:
        """Give it power; the journal is replayed."""
        arguments = [os.fsencode(argument) for argument in (self._device, self.root, "ext4")]
        _check(_libc.mount(*arguments, 0, options.encode()), "mount")
        self._is_mounted = True

    def cut(self, how: Cut = Cut.NO_LOG_FLUSH) -> None:
        """Stop it: every later write and fsync on it fails."""
        descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, pack("I", how))
        finally:
            os.close(descriptor)

    def unmount(self, *, is_lazy: bool = False) -> None:
        """Forget what is in memory; nobody may have a file open, unless that is for later."""
        _check(_libc.umount2(os.fsencode(self.root), _DETACH if is_lazy else 0), "umount")
        self._is_mounted = False

    def close(self) -> None:
        """Give the loop device back and remove the image."""
        if self._is_mounted:
            self.unmount(is_lazy=True)
        os.close(self._held)
        self._image.unlink()
        self.root.rmdir()


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _run(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()
