"""Long work beside the event loop's other work: in slices, or in a thread to its end.

Source: docs/spec/log.md §5.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Generator
from typing import Any, Final, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_SECONDS: Final = 0.002


async def in_slices(steps: Generator[None, None, T]) -> T:
    """Run ``steps`` to the end, letting others run whenever a slice is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SLICE_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if loop.time() >= deadline:
            await asyncio.sleep(0)
            deadline = loop.time() + SLICE_SECONDS


def at_once(steps: Generator[None, None, T]) -> T:
    """Run ``steps`` to the end without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` that uses files: a cancelled caller still waits until it has ended."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("failed after its caller was cancelled: %s", error)
        raise
