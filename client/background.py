"""Tasks that have an owner, and the signal that wakes them.

Source: docs/spec/reliability.md §9.1 rule 8 (every background task has an owner); one class each,
used by all of client/.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


class BackgroundTasks:
    """Background tasks of one object; its ``close`` ends them all.

    A task that raises is a bug of ours: it is logged once and told to ``on_failure``, so that
    whoever waits for its work learns that none will come.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin ``work``."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def close(self) -> None:
        """Cancel every task and return when all have ended; not from within one of them."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("background task failed name=%s", task.get_name(), exc_info=error)
            self._on_failure(error)


class Signal:
    """Something has changed: all who wait look again."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def notify(self) -> None:
        """Wake everybody who waits now, who came first first."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Return at the next :meth:`notify`; False when ``timeout_s`` passes before."""
        if timeout_s is not None and timeout_s <= 0:
            return False
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[future] = None
        timer = None if timeout_s is None else loop.call_later(timeout_s, _give_up, future)
        try:
            await future
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(future, None)
            if timer is not None:
                timer.cancel()
        return True


def _give_up(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(TimeoutError())
