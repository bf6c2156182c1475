"""Parts of pages that many tabs ask for again and again: made once for all that would see the same.

Source: docs/spec/console.md §2.1 (what is hot is asked for at most every 2 s) and §5 (budgets).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from starlette.responses import Response

PATHS: Final = frozenset(
    ("/overview", "/brokers", "/topics", "/topic", "/groups", "/group", "/coordinator")
)
"""Pages that say the same to everybody of one name: no form of a session is in them."""
KEPT_S: Final = 1.0
MOST: Final = 256


class SharedParts:
    """The answers of the last second, by what they depend on."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, tuple[float, asyncio.Task[Response]]] = OrderedDict()

    async def part(self, key: Hashable, make: Callable[[], Awaitable[Response]]) -> Response:
        """The answer that was made, or is being made, for another one; else a new one."""
        self._forget()
        known = self._made.get(key)
        if known is None:
            known = time.monotonic(), asyncio.create_task(_made(make), name="console part")
            self._made[key] = known
        try:
            found = await asyncio.shield(known[1])  # who goes takes it from nobody else
        except Exception:
            self._made.pop(key, None)
            raise
        return Response(bytes(found.body), found.status_code, dict(found.headers))

    def close(self) -> None:
        """Give up what is being made."""
        for _, task in self._made.values():
            task.cancel()
        self._made.clear()

    def _forget(self) -> None:
        now = time.monotonic()
        while self._made:
            key, (at, task) = next(iter(self._made.items()))
            is_over = task.done() and now - at > KEPT_S
            if not is_over and len(self._made) <= MOST:
                return
            del self._made[key]


async def _made(make: Callable[[], Awaitable[Response]]) -> Response:
    return await make()
