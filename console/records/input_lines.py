"""Lines of standard input as they come: a terminal, a pipe that stays open, a file."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Final

_CHUNK_BYTES: Final = 1 << 16


async def standard_input() -> AsyncIterator[list[bytes]]:
    """Whole lines without their ends, as many as came at once; a last one may lack its end.

    No thread waits in ``read``: it would keep Ctrl-C from ending the program.
    """
    descriptor = sys.stdin.fileno()
    rest = b""
    while True:
        await _readable(descriptor)
        data = os.read(descriptor, _CHUNK_BYTES)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _readable(descriptor: int) -> None:
    """Return when reading would not wait."""
    loop = asyncio.get_running_loop()
    is_ready = asyncio.Event()
    try:
        loop.add_reader(descriptor, is_ready.set)
    except PermissionError:  # a regular file, which can always be read
        return
    try:
        await is_ready.wait()
    finally:
        loop.remove_reader(descriptor)
