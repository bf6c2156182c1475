"""Whose turn it is where not everybody takes each: the one rule of both round-robin assignors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def next_in_turn(takers: Sequence[int], turn: int) -> int:
    """The first of ``takers``, which ascend, from ``turn`` on; else the first of all.

    Turns go around, and who cannot take this one is passed over.
    """
    return takers[bisect_left(takers, turn) % len(takers)]
