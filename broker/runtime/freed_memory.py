"""How much freed memory this process keeps for its next batch, instead of giving it back.

The C library gives the end of its heap back as soon as 128 KiB of it are free, later twice the
largest block that it saw: with batches of a megabyte that is after nearly every batch. The next
one gets fresh pages, each zeroed by the kernel at its first touch, which took a fifth of the CPU
time of a follower. Larger blocks than the bound below are still given back when they are freed.
Measured: docs/benchmarks.md, "Memory that is kept". Source: mallopt(3).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

KEPT_BYTES: Final = 32 << 20
"""Free at the end of the heap, at most; and the least size of a block that is mapped by itself."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_SETTINGS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables by which an operator has the last word."""


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Set the C library's thresholds; False where it is not glibc, or told something already.

    Call it before threads start: mallopt and malloc must not run at the same time.
    """
    if any(name in environment for name in _SETTINGS):
        return False
    import ctypes  # takes 5 ms, which only nodes need to spend

    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    kept = mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    return bool(kept and mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES))
