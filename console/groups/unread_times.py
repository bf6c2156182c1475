"""The age of what groups have not read yet, remembered while they stay where they are.

The first record behind an offset is asked for with a Fetch, which costs a node a look into a file.
Who asks again and again about groups that stand still has to ask once.
Source: docs/spec/console.md §5 (budgets); docs/spec/users.md §3.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from barnabas.client.cluster import TopicPartition

Place = tuple[str, TopicPartition]
"""A group and a partition of it."""

KEPT_S: Final = 600.0
"""Compaction may take the record away meanwhile: it is looked for again then."""
MOST: Final = 200_000


class UnreadTimes:
    """By group and partition: where it stood, and the timestamp of the record that lay there."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[Place, tuple[int, int, float]] = {}

    def of(self, place: Place, start: int) -> int | None:
        """The timestamp, ms, of the first record from ``start`` on; None for: ask."""
        known = self._known.get(place)
        if known is None or known[0] != start or self._clock() - known[2] > KEPT_S:
            return None
        return known[1]

    def note(self, place: Place, start: int, time_ms: int | None) -> None:
        """What was found; that there is nothing is not kept, since more may be written."""
        self._known.pop(place, None)
        if time_ms is None:
            return
        self._known[place] = start, time_ms, self._clock()
        while len(self._known) > MOST:
            del self._known[next(iter(self._known))]
