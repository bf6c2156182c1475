"""Other nodes as rounds see them: what they were asked, and answers that the test gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from barnabas.broker.runtime.node_rounds import NodeRounds
from barnabas.client.errors import Disconnected, UnsupportedVersion


class FakeLink:
    """A connection to one node; :meth:`asked` waits for its next request."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.is_closed = False
        self.open: list[asyncio.Future[Any]] = []

    def version_of(self, message_class: type, most: int | None = None) -> int:
        if self.node.version is None:
            raise UnsupportedVersion("it does not serve this")
        return self.node.version if most is None else min(most, self.node.version)

    async def request(
        self, message: Any, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        assert not self.open, "one request under way"
        answer = asyncio.get_running_loop().create_future()
        self.open.append(answer)
        self.node.requests.append((message, version, answer))
        self.node.came.set()
        try:
            return await answer
        finally:
            self.open.remove(answer)

    async def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.node.closed += 1
        for answer in self.open:
            if not answer.done():
                answer.set_exception(Disconnected("it was closed"))


class FakeNode:
    """One other node."""

    def __init__(self, version: int | None) -> None:
        self.version = version
        self.is_reachable = True
        self.requests: list[tuple[Any, int | None, asyncio.Future[Any]]] = []
        self.came = asyncio.Event()
        self.dialled = self.closed = 0

    async def asked(self, count: int = 1) -> Any:
        """The request number ``count``, when it is there."""
        while len(self.requests) < count:
            self.came.clear()
            async with asyncio.timeout(60):
                await self.came.wait()
        return self.requests[count - 1][0]

    def answer(self, answer: Any, count: int = 1) -> None:
        self.requests[count - 1][2].set_result(answer)

    def hang_up(self, count: int = 1) -> None:
        self.requests[count - 1][2].set_exception(Disconnected("it went away"))


class FakeNodes:
    """Nodes by id."""

    def __init__(self, version: int | None = 5) -> None:
        self.known: dict[int, FakeNode] = {}
        self._version = version

    def __getitem__(self, node: int) -> FakeNode:
        if node not in self.known:
            self.known[node] = FakeNode(self._version)
        return self.known[node]

    def locate(self, node: int) -> tuple[str, int] | None:
        return "host", node

    async def dial(self, host: str, port: int) -> Any:
        node = self[port]
        node.dialled += 1
        if not node.is_reachable:
            raise Disconnected("nobody is there")
        return FakeLink(node)


@asynccontextmanager
async def running(serve: Callable[[], Any]) -> AsyncIterator[None]:
    """Have ``serve`` run meanwhile."""
    task = asyncio.ensure_future(serve())
    try:
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


def rounds_of(nodes: FakeNodes, rounds: Any) -> NodeRounds:
    return NodeRounds(rounds, nodes.dial, nodes.locate)
