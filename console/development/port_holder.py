"""Who listens on a port of this machine: what a newcomer needs to know when 9092 is taken.

Source: docs/spec/console.md §8; proc(5) for /proc/net/tcp and /proc/PID/fd.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS: Final = "0A"


def port_holder(port: int) -> str | None:
    """``java (process 4711)``: whose socket listens on ``port``; None where that cannot be seen.

    Another user's process shows its sockets to root only; elsewhere than on Linux nothing is seen.
    """
    inodes = set(_listening(port))
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        if _has_one(process, inodes):
            return f"{_name(process)} (process {process.name})"
    return None


def _listening(port: int) -> Iterator[str]:
    """The sockets that listen there, as their links in /proc read."""
    for table in _TABLES:
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if words[3] == _LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                yield f"socket:[{words[9]}]"


def _has_one(process: Path, inodes: set[str]) -> bool:
    try:
        return any(str(link.readlink()) in inodes for link in (process / "fd").iterdir())
    except OSError:  # it has ended, or is somebody else's
        return False


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "a program"
