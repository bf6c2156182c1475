"""The queue of ``producer.type=async``: items gathered, shown to callbacks, sent in batches.

Source: docs/spec/coordinator.md §7.3; the documentation of Kafka 0.7's producer
(ProducerSendThread, EventHandler, CallbackHandler).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from barnabas.client.background import BackgroundTasks, Signal
from barnabas.client.errors import QueueFull
from barnabas.protocol.records.record import HeaderPair

from .accumulator import Delivery
from .producer_config import ProducerConfig

log = logging.getLogger(__name__)


class Item(NamedTuple):
    """One record as the application gave it: nothing is encoded, no partition chosen yet."""

    topic: str
    value: Any
    key: Any = None
    partition: int | None = None
    headers: Sequence[HeaderPair] = ()
    timestamp_ms: int | None = None
    partition_key: Any = None
    """Chooses the partition in place of ``key``."""
    delivery: Delivery | None = None


class EventHandler(Protocol):
    """What becomes of a batch of the queue; the default sends its items."""

    async def handle(self, items: Sequence[Item], sending: Sending) -> None:
        """Do it; ``sending.post`` sends one item. What it raises fails the batch, logged."""
        ...

    async def close(self) -> None:
        """No batch comes any more."""
        ...


class Sending(Protocol):
    """What an event handler may do with items."""

    async def post(self, item: Item) -> None:
        """Send one item once there is room; raises what encoder or partitioner raise."""
        ...


class DefaultEventHandler:
    """Sends every item; one that cannot be encoded is logged and dropped, the others go."""

    async def handle(self, items: Sequence[Item], sending: Sending) -> None:
        """Send all."""
        for item in items:
            try:
                await sending.post(item)
            except Exception as error:  # noqa: BLE001 - an application's encoder may raise anything
                log.warning("dropped a record topic=%s reason=%s", item.topic, error)
                if item.delivery is not None:
                    item.delivery.refuse(error)

    async def close(self) -> None:
        """Nothing is left to do."""


class CallbackHandler:
    """Sees items on their way through the queue; inherit and override what is wanted."""

    def before_enqueue(self, item: Item) -> Item:
        """The item to put into the queue."""
        return item

    def after_enqueue(self, item: Item, added: bool) -> None:
        """Whether there was room for it."""

    def after_dequeuing_existing_data(self, item: Item | None) -> Sequence[Item]:
        """What goes into the batch instead of ``item``, which is None when time ran out."""
        return () if item is None else (item,)

    def before_sending_data(self, items: Sequence[Item]) -> Sequence[Item]:
        """The batch to hand over."""
        return items

    def last_batch_before_close(self) -> Sequence[Item]:
        """What goes into the last batch besides."""
        return ()

    def close(self) -> None:
        """Nothing comes any more; called last."""


class ProducerQueue:
    """A bounded queue, and the task that empties it by count and by time."""

    def __init__(
        self,
        config: ProducerConfig,
        sending: Sending,
        handler: EventHandler,
        callbacks: CallbackHandler,
    ) -> None:
        self._config = config
        self._sending = sending
        self._handler = handler
        self._callbacks = callbacks
        self._items: deque[Item] = deque()
        self._room = Signal()
        self._news = asyncio.Event()
        self._idle = Signal()
        self._flushing = 0
        """How many callers flush."""
        self._waiting = 0
        """How many items wait to be queued."""
        self._is_closing = False
        self._is_busy = False
        self._tasks = BackgroundTasks(self._fail)
        self._loop = asyncio.get_running_loop()
        self._running = self._tasks.spawn(self._run(), "producer queue")

    async def put(self, item: Item) -> Delivery:
        """Queue one item, waiting for room as ``queue.enqueue.timeout.ms`` says.

        Raises QueueFull.
        """
        item, delivery = self._prepared(item)
        limit_ms = self._config.enqueue_timeout_ms
        deadline = None if limit_ms < 0 else self._loop.time() + limit_ms / 1000
        self._waiting += 1
        try:
            while self.is_full:
                left_s = None if deadline is None else deadline - self._loop.time()
                if not await self._room.wait(left_s):
                    self._refuse(item)
            self._append(item)
        finally:
            self._waiting -= 1
            if self._is_hurried:
                self._news.set()
                self._idle.notify()
        return delivery

    def put_soon(self, item: Item) -> Delivery:
        """Queue one item; raises QueueFull when there is no room now."""
        item, delivery = self._prepared(item)
        if self.is_full:
            self._refuse(item)
        self._append(item)
        return delivery

    @property
    def is_full(self) -> bool:
        """No item can be added."""
        return len(self._items) >= self._config.queue_size

    async def room(self) -> None:
        """Return when an item can be added."""
        while self.is_full:
            await self._room.wait()

    async def flush(self) -> None:
        """Return when everything queued so far was handed over."""
        self._flushing += 1
        try:
            while self._items or self._is_busy or self._waiting:
                self._news.set()
                await self._idle.wait()
        finally:
            self._flushing -= 1

    async def close(self) -> None:
        """Hand over what is left and what the callbacks add, then tell handler and callbacks."""
        if self._is_closing:
            return
        self._is_closing = True
        self._news.set()
        await asyncio.wait([self._running])
        await self._handler.close()
        self._callbacks.close()

    def _prepared(self, item: Item) -> tuple[Item, Delivery]:
        delivery = item.delivery or Delivery()
        return self._callbacks.before_enqueue(item._replace(delivery=delivery)), delivery

    def _append(self, item: Item) -> None:
        self._items.append(item)
        self._callbacks.after_enqueue(item, True)
        if len(self._items) >= self._config.batch_size:
            self._news.set()

    def _refuse(self, item: Item) -> None:
        self._callbacks.after_enqueue(item, False)
        raise QueueFull(f"{len(self._items)} records wait, queue.size={self._config.queue_size}")

    async def _run(self) -> None:
        dispatched_at = self._loop.time()
        while not self._is_closing or self._items or self._waiting:
            self._news.clear()
            left_s = dispatched_at + self._config.queue_time_ms / 1000 - self._loop.time()
            is_due = (bool(self._items) and self._is_hurried) or left_s <= 0
            if len(self._items) < self._config.batch_size and not is_due:
                try:
                    async with asyncio.timeout(left_s):
                        await self._news.wait()
                except TimeoutError:
                    pass
                continue
            await self._dispatch(self._collected(), is_late=left_s <= 0)
            dispatched_at = self._loop.time()
        await self._dispatch(list(self._callbacks.last_batch_before_close()), is_late=False)

    @property
    def _is_hurried(self) -> bool:
        return self._flushing > 0 or self._is_closing

    def _collected(self) -> list[Item]:
        count = min(len(self._items), self._config.batch_size)
        taken = [self._items.popleft() for _ in range(count)]
        self._room.notify()
        batch: list[Item] = []
        try:
            for item in taken:
                batch += self._callbacks.after_dequeuing_existing_data(item)
        except Exception as error:
            log.exception("callback failed records=%d", count)
            _refuse_all(taken, error)
            batch = []
        self._is_busy = bool(batch)
        return batch

    async def _dispatch(self, items: list[Item], *, is_late: bool) -> None:
        try:
            if is_late:
                items += self._callbacks.after_dequeuing_existing_data(None)
            batch = self._callbacks.before_sending_data(items) if items else ()
            reason: Exception = QueueFull("the event handler did not send it")
            if batch:
                await self._handler.handle(batch, self._sending)
        except Exception as error:
            log.exception("event handler failed records=%d", len(items))
            reason = error
        _refuse_all(items, reason)
        self._is_busy = False
        self._idle.notify()

    def _fail(self, error: BaseException) -> None:
        """A callback raised: nothing can be handed over any more."""
        reason = error if isinstance(error, Exception) else RuntimeError(repr(error))
        self._is_busy = False
        _refuse_all(self._items, reason)
        self._items.clear()
        self._room.notify()
        self._idle.notify()


def _refuse_all(items: Iterable[Item], reason: Exception) -> None:
    """Those that the producer did not take."""
    for item in items:
        if item.delivery is not None and not item.delivery.is_accepted:
            item.delivery.refuse(reason)
