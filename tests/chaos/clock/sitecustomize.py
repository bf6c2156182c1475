"""Loaded by an interpreter that starts with this folder on its path: its wall clock is wrong.

By how many nanoseconds says the file that BARNABAS_TEST_CLOCK names, eight bytes that may change
at any time. ``time.time`` and ``time.time_ns`` are shifted, where nodes take the time of day from;
monotonic clocks and the times of files are not. Source: docs/spec/reliability.md §3 P21.
"""

from __future__ import annotations

import mmap
import os
import time


def shift(path: str) -> None:
    """Add what the file says to the time of day."""
    with open(path, "rb") as file:  # noqa: PTH123 - this runs in every start of a node
        shared = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    true_ns = time.time_ns

    def shifted_ns() -> int:
        return true_ns() + int.from_bytes(shared[:8], "little", signed=True)

    vars(time).update(time_ns=shifted_ns, time=lambda: shifted_ns() / 1e9)


if "BARNABAS_TEST_CLOCK" in os.environ:
    shift(os.environ["BARNABAS_TEST_CLOCK"])
