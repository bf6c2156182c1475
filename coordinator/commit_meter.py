"""How many requests the journal appends together, and how long until they are committed.

Noted only where somebody asks for metrics. The journal counts by itself, in place: a call more for
each batch would be one for each commit of a quiet node. Source: docs/spec/console.md §6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SIZES: Final = tuple((1 << bits) - 1 for bits in range(12))
"""Requests of one batch, the upper bounds of buckets: 0, 1, 3, 7 ... 2047; the last has none."""
BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
"""And of :attr:`CommitMeter.buckets`."""


class CommitMeter:
    """Batches of commits, group metadata and tombstones; ``clock`` gives seconds."""

    __slots__ = ("buckets", "clock", "requests", "seconds", "sizes")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.sizes = [0] * 64
        """Batches by the number of bits of how many requests they have."""
        self.requests = 0
        """Of all batches together."""
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        """Batches by the time from their append until the high watermark passed them."""
        self.seconds = 0.0

    @property
    def sizes_by_bucket(self) -> list[int]:
        """Batches by SIZES."""
        end = len(SIZES)
        return [*self.sizes[:end], sum(self.sizes[end:])]
