"""What is fetched once into ~/.cache/barnabas: whole or not at all, by one process at a time."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

CACHE: Final = Path("~/.cache/barnabas").expanduser()


def fetched(folder: Path, wanted: str, fetch: Callable[[Path], object]) -> Path:
    """``folder``, once it holds a file that matches ``wanted``; else ``fetch`` fills a new one.

    Whoever comes second waits. A fetch that fails or is killed leaves nothing behind that a later
    one would take for the whole. What ``fetch`` raises is passed on.
    """
    if any(folder.glob(wanted)):
        return folder
    with locked(folder):
        if not any(folder.glob(wanted)):
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as scratch:
                beside = Path(scratch) / folder.name
                beside.mkdir()
                fetch(beside)
                shutil.rmtree(folder, ignore_errors=True)
                beside.replace(folder)
    return folder


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """Hold the lock of ``place``, a file beside it, against all other processes that ask for it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
