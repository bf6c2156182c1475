"""Who waits for room in the buffer, as in Kafka's BufferPool: first come, first served by topic."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from barnabas.client.background import Signal
from barnabas.client.errors import QueueFull

from .accumulator import Delivery
from .producer_queue import Item


class _Waiter:
    """One record that waits behind others of its topic."""

    __slots__ = ("is_first", "left")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_first: asyncio.Future[None] = loop.create_future()
        self.left: asyncio.Future[None] = loop.create_future()
        """It was taken, or will not be: it was refused, or its sender gave up."""


class BufferWaiters:
    """A queue for each topic: a record that comes later does not overtake one that waits.

    ``send`` takes a record or raises QueueFull; ``memory_freed`` says when to try again.
    """

    def __init__(self, send: Callable[[Item], Delivery], memory_freed: Signal) -> None:
        self._send = send
        self._memory_freed = memory_freed
        self._queues: dict[str, deque[_Waiter]] = {}

    async def send(self, item: Item) -> Delivery:
        """Hand over a record once there is room; raises what handing over raises."""
        queue = self._queues.get(item.topic)
        if queue is None:
            try:
                return self._send(item)
            except QueueFull:
                queue = self._queues[item.topic] = deque()
        waiter = _Waiter(asyncio.get_running_loop())
        queue.append(waiter)
        try:
            if queue[0] is not waiter:
                await waiter.is_first
            return await self._sent_by_the_first(item)
        finally:
            queue.remove(waiter)
            waiter.left.set_result(None)
            if not queue:
                del self._queues[item.topic]
            elif not queue[0].is_first.done():
                queue[0].is_first.set_result(None)

    async def served(self) -> None:
        """Return when everything that waits now was taken, or will not be."""
        waiting = [waiter.left for queue in self._queues.values() for waiter in queue]
        if waiting:
            await asyncio.wait(waiting)

    async def _sent_by_the_first(self, item: Item) -> Delivery:
        while True:
            try:
                return self._send(item)
            except QueueFull:
                await self._memory_freed.wait()
