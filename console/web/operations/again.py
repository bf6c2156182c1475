"""Reading again until the cluster shows what was done: other nodes hear of a change a little later.

Source: docs/spec/console.md §0 (decision 5: verify).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

WITHIN_S: Final = 10.0
_PAUSE_S: Final = 0.1


async def until(
    is_so: Callable[[], Awaitable[bool]], otherwise: str, within_s: float = WITHIN_S
) -> str:
    """Nothing once it is so, ``otherwise`` when it is not in time. Raises KafkaError."""
    loop = asyncio.get_running_loop()
    end = loop.time() + within_s
    while not await is_so():
        if loop.time() > end:
            return otherwise
        await asyncio.sleep(_PAUSE_S)
    return ""
