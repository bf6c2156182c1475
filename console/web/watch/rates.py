"""How fast numbers grow, from what two looks at them saw."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

APART_S: Final = 1.0
"""Two looks that are closer tell nothing."""
MOST: Final = 5_000


class Rates:
    """Remembers the last two looks at each number."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Hashable, tuple[float, int, float | None]] = OrderedDict()

    def observe(self, key: Hashable, value: int) -> float | None:
        """How much ``value`` grows in a second; None at the first look."""
        now = time.monotonic()
        at, before, rate = self._seen.get(key, (now, value, None))
        if now - at >= APART_S:
            at, before, rate = now, value, max(0.0, (value - before) / (now - at))
        self._seen[key] = at, before, rate
        self._seen.move_to_end(key)
        while len(self._seen) > MOST:
            self._seen.popitem(last=False)
        return rate
