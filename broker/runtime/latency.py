"""How long a node's own duties take: turns of the loop, authority checks, echoes, control requests.

Clients' load must not make them late: docs/decisions/0010. Noted at most some hundred times a
second, told by metrics/. Kafka's likes: ZooKeeperRequestLatencyMs, RequestQueueTimeMs.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 5.0)
"""The last bucket of :attr:`Latency.buckets` has no bound."""
LOOK_S: Final = 0.05
"""How often a loop that was late lately is asked how late it is."""
REST_LOOK_S: Final = 0.25
"""The same for one that is on time: every look wakes an idle node."""
LATE_S: Final = 0.0025
REMEMBERED_LOOKS: Final = 20
"""So many looks after the last late one the loop is taken for one that is on time."""


class Latency:
    """A histogram of seconds, and the worst so far."""

    __slots__ = ("buckets", "seconds", "worst")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0
        self.worst = 0.0

    def observe(self, seconds: float) -> None:
        """Count one more; less than nothing, by a clock that was turned back, counts as nothing."""
        seconds = max(0.0, seconds)
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds
        self.worst = max(self.worst, seconds)


class LoopLag:
    """How much later than due the loop calls: what a beacon or an order waits for its turn."""

    def __init__(self) -> None:
        self.latency = Latency()

    async def run(self) -> None:
        """Look until cancelled."""
        loop = asyncio.get_running_loop()
        looks_left = REMEMBERED_LOOKS
        while True:
            due = loop.time() + (LOOK_S if looks_left else REST_LOOK_S)
            await asyncio.sleep(due - loop.time())
            late = loop.time() - due
            self.latency.observe(late)
            looks_left = REMEMBERED_LOOKS if late >= LATE_S else max(0, looks_left - 1)
