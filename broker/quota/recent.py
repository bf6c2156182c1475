"""What is kept of those who were seen lately, and of no more than so many.

Client ids are invented by clients: whoever sends another one with each request must not fill the
memory. Source: docs/spec/security.md §4 (S62).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

LIVES_S: Final = 3600.0
"""Forgotten after so long without use, as Kafka's sensors are."""
COUNT_MAX: Final = 100_000
"""Beyond so many the one unused for longest goes."""
SWEEPS: Final = 2
"""Looked at with each use: more than one comes, so that the old ones go faster than new ones."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """Values by key, made at their first use."""

    def __init__(self, count_max: int = COUNT_MAX) -> None:
        self._count_max = count_max
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K, now: float, make: Callable[[], V]) -> V:
        """The value of ``key``, used now."""
        kept = self._kept
        found = kept.pop(key, None)
        value = make() if found is None else found[1]
        kept[key] = now, value
        if len(kept) > self._count_max:
            kept.popitem(last=False)
        for _ in range(SWEEPS):
            oldest = next(iter(kept))
            if now - kept[oldest][0] < LIVES_S:
                break
            del kept[oldest]
        return value

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
