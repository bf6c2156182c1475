"""Files of a log opened to be looked at: names taken apart, bytes mapped and never written.

Source: docs/spec/log.md §2.1.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from barnabas.protocol.log_files.checkpoints import BadCheckpoint

GOING: Final = (".deleted", ".cleaned", ".swap")
"""What is appended to the name of a file that is on its way in or out."""


def plain_name(path: Path) -> str:
    """The name of a file that is on its way in or out, without what says so."""
    name = path.name
    for suffix in GOING:
        name = name.removesuffix(suffix)
    return name


def base_offset(path: Path) -> int:
    """The offset a segment file is named after; raises BadCheckpoint for another name."""
    stem = path.name.split(".")[0]
    if not stem.isdigit():
        raise BadCheckpoint("the name is no offset")
    return int(stem)


@contextmanager
def mapped(path: Path) -> Iterator[bytes | mmap.mmap]:
    """The bytes of a file, read where they are needed; an empty file cannot be mapped."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
