"""The least of what was observed in the last seconds, in one number for each second."""

from __future__ import annotations

import math


class SlidingMinimum:
    """Remembers the least value of each of the last ``seconds`` seconds."""

    __slots__ = ("_least", "_seconds")

    def __init__(self, seconds: int) -> None:
        self._seconds = seconds
        self._least: dict[int, float] = {}

    def observe(self, now: float, value: float) -> None:
        """One more value, seen at ``now`` in seconds by a clock that does not go back."""
        second = int(now)
        if second not in self._least:
            self._forget(second)
        self._least[second] = min(value, self._least.get(second, math.inf))

    def least(self, now: float) -> float:
        """The least since ``seconds`` seconds; infinite when nothing was observed."""
        self._forget(int(now))
        return min(self._least.values(), default=math.inf)

    def _forget(self, second: int) -> None:
        for old in [seen for seen in self._least if seen <= second - self._seconds]:
            del self._least[old]
