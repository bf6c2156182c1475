"""Long work on a loop that others use as well: after some milliseconds they have a turn.

The web console reads of 100,000 partitions and 10,000 groups while people wait for pages.
Source: docs/spec/console.md §5 (budgets).
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

TURN_S: Final = 0.004


class Turns:
    """Counts the time since the loop was given away last."""

    def __init__(self, turn_s: float = TURN_S) -> None:
        self._turn_s = turn_s
        self._since = time.monotonic()

    async def pause(self) -> None:
        """Let others have the loop, if this turn has lasted for long enough.

        To be called between two pieces of work, each of which is short.
        """
        if time.monotonic() - self._since >= self._turn_s:
            await asyncio.sleep(0)
            self._since = time.monotonic()
