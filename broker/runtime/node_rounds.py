"""Requests to other nodes in rounds: at most one under way to each node, with all that is queued.

What comes while one is under way goes with the next. A connection is opened when it is needed and
kept; one that fails is closed before anything is asked again, so that no late answer, and no
request that was not read yet, belongs to a round that is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from barnabas.client.connection.connection import Connection
from barnabas.client.errors import Disconnected, KafkaError

Dial = Callable[[str, int], Awaitable[Connection]]
"""Connect to an inter-broker endpoint, with whatever proof of identity it asks for."""
Locate = Callable[[int], tuple[str, int] | None]
"""The address of a node's inter-broker listener; None while it is not known."""


class Rounds(Protocol):
    """What there is to ask of nodes."""

    def has_work(self, node: int) -> bool:
        """Whether something is queued for a node."""

    async def exchange(self, node: int, link: Connection) -> None:
        """Send what is queued, and take the answer in. Raises KafkaError or OSError."""

    def failed(self, node: int, error: Exception) -> None:
        """There is no connection, or it ended: neither is anything queued for the node now."""


class NodeRounds:
    """Serves ``rounds``, one task for each node that something is queued for."""

    def __init__(self, rounds: Rounds, dial: Dial, locate: Locate) -> None:
        self._rounds = rounds
        self._dial = dial
        self._locate = locate
        self._tasks: asyncio.TaskGroup | None = None
        self._busy: set[int] = set()
        """Nodes with a round under way, or one that waits for :meth:`run`."""
        self._links: dict[int, tuple[tuple[str, int], Connection]] = {}

    @property
    def count(self) -> int:
        """Nodes with a round under way."""
        return len(self._busy)

    def wake(self, node: int) -> None:
        """Something is queued for a node."""
        if node in self._busy:
            return
        self._busy.add(node)
        if self._tasks is not None:
            self._start(self._tasks, node)

    def give_up(self, node: int) -> None:
        """End the connection to a node: a round under way fails, as if the node had closed it.

        For a node that hangs. Its kernel keeps the connection open, and an answer that nobody needs
        any more would be waited for until the request times out.
        """
        known = self._links.get(node)
        if known is not None and self._tasks is not None:
            self._tasks.create_task(known[1].close(), name=f"giving up node {node}")

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                for node in self._busy:
                    self._start(tasks, node)
                await asyncio.get_running_loop().create_future()
        finally:
            self._tasks = None
            for node in list(self._links):
                await self._hang_up(node)

    def _start(self, tasks: asyncio.TaskGroup, node: int) -> None:
        tasks.create_task(self._serve(node), name=f"rounds with node {node}")

    async def _serve(self, node: int) -> None:
        try:
            while self._rounds.has_work(node):
                try:
                    await self._rounds.exchange(node, await self._link(node))
                except (KafkaError, OSError) as error:
                    await self._hang_up(node)
                    self._rounds.failed(node, error)
        finally:
            self._busy.discard(node)

    async def _link(self, node: int) -> Connection:
        address = self._locate(node)
        known = self._links.get(node)
        if known is not None:
            if known[0] == address and not known[1].is_closed:
                return known[1]
            await self._hang_up(node)
        if address is None:
            raise Disconnected(f"the address of node {node} is not known")
        link = await self._dial(*address)
        self._links[node] = (address, link)
        return link

    async def _hang_up(self, node: int) -> None:
        known = self._links.pop(node, None)
        if known is not None:
            await known[1].close()
