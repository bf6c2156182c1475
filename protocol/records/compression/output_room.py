"""Room that blocks are decompressed into, kept for the next batch.

Room made for each batch is zeroed first and then touched page by page, which together take longer
than LZ4 does. Each thread has its own, since libraries let others run while they decompress.
"""

from __future__ import annotations

import threading
from typing import Final

KEPT_BYTES_MAX: Final = 4 << 20
"""What a thread keeps: the usual batch, plain, and the largest block of LZ4 behind it."""

_OF_THREAD: Final = threading.local()


def room(size: int) -> bytearray:
    """At least ``size`` bytes with whatever was in them, this thread's until it asks again."""
    kept: bytearray | None = getattr(_OF_THREAD, "room", None)
    if kept is not None and len(kept) >= size:
        return kept
    made = bytearray(size)
    if size <= KEPT_BYTES_MAX:
        _OF_THREAD.room = made
    return made


def more_room(given: bytearray, used: int, size: int) -> bytearray:
    """``size`` bytes or more that begin with the ``used`` first ones of ``given``."""
    if len(given) >= size:
        return given
    # Twice as much each time: grown by what comes next alone, all would be copied for each block.
    doubled = 2 * len(given)
    made = room(max(size, doubled if size > KEPT_BYTES_MAX else min(doubled, KEPT_BYTES_MAX)))
    made[:used] = memoryview(given)[:used]
    return made
