"""The controller's channels: one queue a node, one request in flight, sent until it is answered.

Source: docs/spec/cluster.md §2.4.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from barnabas.client.errors import KafkaError

log = logging.getLogger(__name__)


LAGGING_FAILURES: Final = 2
"""So many in a row, and nobody waits for the node any more."""


class InterBrokerConnection(Protocol):
    """A connection to another node's inter-broker listener."""

    async def request(
        self, message: Any, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send one request and return its answer; raises KafkaError when none comes."""

    async def close(self) -> None:
        """End the connection."""


Dial = Callable[[str, int], Awaitable[InterBrokerConnection]]
"""Connect to an inter-broker endpoint, with whatever proof of identity it asks for."""


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """One control request and who wants its answer."""

    message: Any
    version: int
    answered: Callable[[Any], None] | None = None


class ControllerChannel:
    """The way to one node: orders leave in the order given, the next when one is answered.

    An order that is not answered is sent again, for as long as the node is registered.
    """

    def __init__(
        self,
        node_id: int,
        address: tuple[str, int],
        dial: Dial,
        *,
        timeout_ms: int,
        backoff_s: float = 0.1,
    ) -> None:
        self._node_id = node_id
        self._address = address
        self._dial = dial
        self._timeout_ms = timeout_ms
        self._backoff_s = backoff_s
        self._orders: deque[QueuedRequest] = deque()
        self._filled = asyncio.Event()
        self._link: InterBrokerConnection | None = None
        self._queued = 0
        self._is_over = False
        self._progress = asyncio.Event()
        self.is_lagging = False
        """The node does not answer: whoever can go on without it does not wait for it."""

    def send(self, order: QueuedRequest) -> None:
        """Queue an order; never waits."""
        self._orders.append(order)
        self._queued += 1
        self._filled.set()

    async def heard(self) -> None:
        """Return when the node has answered all that is queued now, or is given up or lagging."""
        last = self._queued
        while self._queued - len(self._orders) < last and not (self._is_over or self.is_lagging):
            await self._progress.wait()

    def give_up_waiting(self) -> None:
        """Count the node as lagging until it answers, if it still owes an answer."""
        self.is_lagging = bool(self._orders)

    async def run(self) -> None:
        """Deliver until cancelled."""
        try:
            while True:
                while not self._orders:
                    self._filled.clear()
                    await self._filled.wait()
                await self._deliver(self._orders[0])
                self._orders.popleft()
                self.is_lagging = False
                self._report_progress()
        finally:
            self._is_over = True
            self._report_progress()
            await self._hang_up()

    def _report_progress(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    async def _deliver(self, order: QueuedRequest) -> None:
        failures, has_warned = 0, False
        while True:
            is_kept = self._link is not None
            try:
                if self._link is None:
                    self._link = await self._dial(*self._address)
                answer = await self._link.request(order.message, order.version, self._timeout_ms)
            except (KafkaError, OSError) as error:
                # Nodes close what idles (connections.max.idle.ms): no reason to warn.
                if not is_kept and not has_warned:
                    log.warning("delayed an order node=%d reason=%s", self._node_id, error)
                    has_warned = True
                failures += 1
                if failures == LAGGING_FAILURES:  # the first may be of a connection that idled
                    self.is_lagging = True
                    self._report_progress()
                await self._hang_up()
                await asyncio.sleep(self._backoff_s)
                continue
            if order.answered is not None:
                order.answered(answer)
            return

    async def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()


class ControllerChannelManager:
    """The ways to all registered nodes, each a task of the controller's group."""

    def __init__(self, tasks: asyncio.TaskGroup, dial: Dial, *, timeout_ms: int) -> None:
        self._tasks = tasks
        self._dial = dial
        self._timeout_ms = timeout_ms
        self._channels: dict[int, tuple[ControllerChannel, asyncio.Task[None]]] = {}

    def open(self, node_id: int, address: tuple[str, int]) -> None:
        """Begin to deliver to a node; a former way to it is given up first."""
        self.close(node_id)
        channel = ControllerChannel(node_id, address, self._dial, timeout_ms=self._timeout_ms)
        task = self._tasks.create_task(channel.run(), name=f"orders to node {node_id}")
        self._channels[node_id] = (channel, task)

    def send(self, node_id: int, order: QueuedRequest) -> None:
        """Queue an order for a node; dropped when the node is gone."""
        if node_id in self._channels:
            self._channels[node_id][0].send(order)

    async def heard(self, timeout_s: float) -> bool:
        """True once every node that answers has answered what is queued for it now.

        One that took longer than ``timeout_s`` is not waited for again before it answers.
        """
        channels = [channel for channel, _ in self._channels.values()]
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(channel.heard() for channel in channels))
        except TimeoutError:
            for channel in channels:
                channel.give_up_waiting()
            return False
        return True

    def close(self, node_id: int) -> None:
        """Stop delivering to a node and forget what was not delivered."""
        if node_id in self._channels:
            self._channels.pop(node_id)[1].cancel()

    def close_all(self) -> None:
        """Stop delivering."""
        for node_id in list(self._channels):
            self.close(node_id)
