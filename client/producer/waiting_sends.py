"""Records that wait for room in the buffer, each topic's in the order in which they were given."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from barnabas.client.background import Signal
from barnabas.client.errors import QueueFull

from .accumulator import Delivery
from .producer_queue import Item


class _Place:
    """One record's place in the line of its topic."""

    __slots__ = ("is_first", "left")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_first: asyncio.Future[None] = loop.create_future()
        self.left: asyncio.Future[None] = loop.create_future()
        """It was taken, or will not be: it was refused, or its sender gave up."""


class WaitingSends:
    """Lines before the buffer: a record that comes later does not overtake one that waits.

    ``send`` takes a record or raises QueueFull; ``memory_freed`` says when to try again.
    """

    def __init__(self, send: Callable[[Item], Delivery], memory_freed: Signal) -> None:
        self._send = send
        self._memory_freed = memory_freed
        self._lines: dict[str, deque[_Place]] = {}

    async def send(self, item: Item) -> Delivery:
        """Hand over a record once there is room; raises what handing over raises."""
        line = self._lines.get(item.topic)
        if line is None:
            try:
                return self._send(item)
            except QueueFull:
                line = self._lines[item.topic] = deque()
        place = _Place(asyncio.get_running_loop())
        line.append(place)
        try:
            if line[0] is not place:
                await place.is_first
            return await self._sent_by_the_first(item)
        finally:
            line.remove(place)
            place.left.set_result(None)
            if not line:
                del self._lines[item.topic]
            elif not line[0].is_first.done():
                line[0].is_first.set_result(None)

    async def through(self) -> None:
        """Return when everything that waits now was taken, or will not be."""
        waiting = [place.left for line in self._lines.values() for place in line]
        if waiting:
            await asyncio.wait(waiting)

    async def _sent_by_the_first(self, item: Item) -> Delivery:
        while True:
            try:
                return self._send(item)
            except QueueFull:
                await self._memory_freed.wait()
