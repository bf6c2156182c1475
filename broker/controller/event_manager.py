"""The controller's event queue: everything that happens is handled one event at a time.

Source: docs/spec/cluster.md §2.1.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Handle = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ControllerEvent:
    """One thing that happened, and what is to be done about it."""

    name: str
    handle: Handle
    dropped: Callable[[], None] | None = None
    """Called instead of ``handle`` when the role ends first: whoever waits must hear of it."""


class ControllerEventManager:
    """First in, first out. Putting never waits; a :meth:`signal` still queued is not doubled."""

    def __init__(self) -> None:
        self._queue: deque[ControllerEvent] = deque()
        self._signals: set[str] = set()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, event: ControllerEvent) -> None:
        """Queue one event."""
        self._queue.append(event)
        self._filled.set()

    def signal(self, name: str, handle: Handle) -> None:
        """Queue "look again": once is enough, however often it is said before that."""
        if name not in self._signals:
            self._signals.add(name)
            self.put(ControllerEvent(name, handle))

    async def next(self) -> ControllerEvent:
        """The oldest event, waiting for one if need be."""
        while not self._queue:
            self._filled.clear()
            await self._filled.wait()
        event = self._queue.popleft()
        self._signals.discard(event.name)
        return event

    def clear(self) -> None:
        """Drop everything queued, telling those who wait for an answer."""
        dropped, self._queue = self._queue, deque()
        self._signals.clear()
        for event in dropped:
            if event.dropped is not None:
                event.dropped()
