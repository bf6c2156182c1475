"""A rate over the last windows, and how long to wait until it is within its bound again.

    | window | window | ... | window | running |     sum / time of all of them
    ^ oldest sample                          ^ now

A burst into an empty history is spread over all windows there may be: else the first request of a
client would look like a flood. Time is an argument, in seconds.
Source: docs/spec/security.md §4 (S59); Kafka 3.9 Rate, SampledStat, SimpleRate and QuotaUtils.
"""

from __future__ import annotations

import math
from collections import deque
from typing import NamedTuple


class Windows(NamedTuple):
    """How far a rate looks back: the whole windows that count, and the one that is running."""

    number: int = 11
    seconds: float = 1.0

    @property
    def whole_s(self) -> float:
        """All windows but the running one."""
        return (self.number - 1) * self.seconds


class _Sample:
    """What was recorded in one window."""

    __slots__ = ("last", "start", "value")

    def __init__(self, start: float) -> None:
        self.start = self.last = start
        self.value = 0.0


class Rate:
    """Units a second. ``is_filled``: a short history is spread over all windows.

    Not so for replication (Kafka's SimpleRate): a throttled replica is to be held back from its
    first second on.
    """

    __slots__ = ("_is_filled", "_samples", "_windows")

    def __init__(self, windows: Windows, *, is_filled: bool = True) -> None:
        self._windows = windows
        self._is_filled = is_filled
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now: float) -> None:
        """Count ``value``; a negative one takes back what was counted."""
        samples = self._samples
        if not samples or now - samples[-1].start >= self._windows.seconds:
            samples.append(_Sample(now))
            # One more than windows: the oldest may have begun before what is looked at.
            if len(samples) > self._windows.number + 1:
                samples.popleft()
        samples[-1].value += value
        samples[-1].last = now

    def value(self, now: float) -> float:
        """The rate now."""
        self._forget(now)
        return sum(sample.value for sample in self._samples) / self.window_s(now)

    def window_s(self, now: float) -> float:
        """The time that the rate is taken over."""
        windows = self._windows
        elapsed = now - (self._samples[0].start if self._samples else now)
        if self._is_filled:
            missing = windows.number - 1 - math.floor(elapsed / windows.seconds)
            elapsed += max(0, missing) * windows.seconds
        return max(elapsed, windows.seconds)

    def throttle_ms(self, bound: float, now: float) -> int:
        """How long to wait until the rate is ``bound`` if nothing comes; 0 while within it."""
        value = self.value(now)
        if value <= bound:
            return 0
        return rounded_ms((value - bound) / bound * self.window_s(now))

    def _forget(self, now: float) -> None:
        """Drop what was last written before all windows that are looked at."""
        samples, most = self._samples, self._windows.number * self._windows.seconds
        while samples and now - samples[0].last >= most:
            samples.popleft()


def rounded_ms(seconds: float) -> int:
    """To the nearest millisecond, a half upwards, as Java rounds."""
    return math.floor(seconds * 1000 + 0.5)
