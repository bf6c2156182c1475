"""ZooKeeper in memory: an ensemble, its sessions, and the accidents that befall them.

It implements barnabas.client.zookeeper.interface.ZooKeeper; time passes on the loop alone, so a
seeded loop gives one history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas.client.zookeeper.interface import (
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    SessionExpired,
    SessionState,
    Set,
    Stat,
    Watch,
    checked,
)
from tests.sim.znode_tree import SimTree


class SimEnsemble:
    """The servers: one tree, and the sessions that are alive."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        latency: Callable[[], float] = lambda: 0.0,
        now_ms: Callable[[], int] = lambda: 1_700_000_000_000,
    ) -> None:
        self.loop = loop
        self.latency = latency
        self.tree = SimTree(now_ms)
        self.alive: set[int] = set()
        self.clients: list[SimZooKeeper] = []
        self.is_stalled = False
        self.held: list[Callable[[], None]] = []
        """What arrived while nothing is answered, in order."""
        self._next_session = 0x1000_0000

    def connect(self, session_timeout_ms: int = 6000) -> SimZooKeeper:
        """A session with this ensemble, connected from the start."""
        self.clients.append(SimZooKeeper(self, session_timeout_ms))
        return self.clients[-1]

    def stall(self) -> None:
        """Answer nothing until :meth:`go_on`; nobody's session ends meanwhile."""
        self.is_stalled = True
        for client in self.clients:
            client.mind_silence()

    def go_on(self, reconnect_s: float = 0.0) -> None:
        """Answer what was asked; who gave its connection up has a new one after ``reconnect_s``."""
        self.is_stalled = False
        held, self.held = self.held, []
        for arrive in held:
            arrive()
        for client in self.clients:
            if client.state is SessionState.SUSPENDED:
                self.loop.call_later(reconnect_s, client.resume)

    def new_session(self) -> int:
        self._next_session += 1
        self.alive.add(self._next_session)
        return self._next_session

    def end(self, session: int) -> None:
        if session in self.alive:
            self.alive.discard(session)
            self.tree.end_session(session)


class SimZooKeeper:
    """One session; requests and answers keep their order, as on one connection."""

    def __init__(self, ensemble: SimEnsemble, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self.on_state: list[Callable[[SessionState], None]] = []
        self.session_id = ensemble.new_session()
        self.state = SessionState.CONNECTED
        self._ensemble = ensemble
        self._loop = ensemble.loop
        self._connected = asyncio.Event()
        self._connected.set()
        self._pending: dict[asyncio.Future[Any], None] = {}
        self._watches: dict[Callable[[], None], None] = {}
        self._last_arrival = 0.0
        self._answers_to_lose = 0
        self._writes_to_lose = 0
        self._is_closed = False
        self._last_sent = 0.0
        self._is_pinged = False
        self.on_ask: Callable[[], None] | None = None
        """Called when something is asked; what it does comes before the question arrives."""

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        result: tuple[bytes, Stat] = await self._read(self._ensemble.tree.get, path, watch)
        return result

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat: Stat | None = await self._read(self._ensemble.tree.exists, path, watch)
        return stat

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._read(self._ensemble.tree.children, path, watch)
        return names

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        operation = checked(Create(path, data, ephemeral, sequence))
        try:
            created: str = await self._write(operation)
        except NoNode:
            if not parents:
                raise
            parent = path.rpartition("/")[0]
            try:
                await self.create(parent, parents=True)
            except NodeExists:
                pass
            created = await self._write(operation)
        return created

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        stat: Stat = await self._write(checked(Set(path, data, version)))
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        await self._write(Delete(path, version))

    async def multi(self, *operations: Op) -> list[Any]:
        for operation in operations:
            checked(operation)
        results: list[Any] = await self._ask(
            lambda: self._ensemble.tree.multi(self.session_id, operations), is_write=True
        )
        return results

    async def peek(self, path: str) -> bytes | None:
        raise ConnectionLost("simulated: there is no other way in")

    async def close(self) -> None:
        if self._is_closed:
            return  # it died, and the servers are not told that it did
        self._is_closed = True
        self._ensemble.end(self.session_id)
        self.on_state.clear()
        self._drop_watches(fire=False)
        self.state = SessionState.LOST

    # What a test does to a session.

    def lose_next_answer(self) -> None:
        """The next request is obeyed, but its answer is lost."""
        self._answers_to_lose += 1

    def lose_next_write(self) -> None:
        """The same for the next write, whatever is read before it."""
        self._writes_to_lose += 1

    def lose_watches(self) -> None:
        """Every watch is gone without having fired: what must not happen, and is survived."""
        self._drop_watches(fire=False)

    def suspend(self) -> None:
        """Cut the connection; the session itself lives on until it expires."""
        self._connected.clear()
        self._tell(SessionState.SUSPENDED)
        for answer in list(self._pending):
            if not answer.done():
                answer.set_exception(ConnectionLost("cut"))
        self._drop_watches(fire=True)

    def resume(self) -> None:
        """Connect again: with the same session when it is alive, else with a new one."""
        if self.session_id not in self._ensemble.alive:
            self._tell(SessionState.LOST)
            self.session_id = self._ensemble.new_session()
        self._connected.set()
        self._tell(SessionState.CONNECTED)

    def expire(self) -> None:
        """The whole way: cut, session timed out at the servers, connected with a new one."""
        self.suspend()
        self._ensemble.end(self.session_id)
        self.resume()

    def mind_silence(self) -> None:
        """As kazoo: a ping a third of the session after the last question, then the end.

        It comes another third later, unless something was asked meanwhile.
        """
        if self._is_closed or not self._ensemble.is_stalled:
            self._is_pinged = False
            return
        third_s = self.session_timeout_ms / 1000 / 3
        now = self._loop.time()
        if now >= self._last_sent + third_s:
            if self._is_pinged:
                self._is_pinged = False
                self.suspend()
                return
            self._is_pinged = True
            self._last_sent = now
        self._loop.call_at(self._last_sent + third_s, self.mind_silence)

    def crash(self) -> None:
        """The process dies: nothing is told here, the servers notice after the timeout."""
        self._is_closed = True
        self.on_state.clear()
        self._connected.clear()
        self._drop_watches(fire=False)
        for answer in list(self._pending):
            answer.cancel()
        timeout = self.session_timeout_ms / 1000
        self._loop.call_later(timeout, self._ensemble.end, self.session_id)

    def _tell(self, state: SessionState) -> None:
        self.state = state
        for told in list(self.on_state):
            told(state)

    def _drop_watches(self, *, fire: bool) -> None:
        for watch in list(self._watches):
            self._ensemble.tree.forget(watch)
            if fire:
                watch()
        self._watches.clear()

    async def _read(self, operation: Callable[..., Any], path: str, watch: Watch | None) -> Any:
        deadline = self._loop.time() + 2 * self.session_timeout_ms / 1000
        while True:
            try:
                return await self._ask(lambda: operation(path, self._watcher(watch)))
            except ConnectionLost:
                if self._loop.time() >= deadline:
                    raise

    async def _write(self, operation: Op) -> Any:
        return await self._ask(
            lambda: self._ensemble.tree.write(self.session_id, operation), is_write=True
        )

    def _watcher(self, watch: Watch | None) -> Callable[[], None] | None:
        if watch is None:
            return None

        def fire() -> None:
            if fire in self._watches:
                self._watches.pop(fire, None)
                self._loop.call_later(self._ensemble.latency(), watch)

        self._watches[fire] = None
        return fire

    async def _ask(self, operation: Callable[[], Any], *, is_write: bool = False) -> Any:
        await self._usable()
        self._last_sent = self._loop.time()
        if self.on_ask is not None:
            self.on_ask()
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._pending[answer] = None
        answer.add_done_callback(lambda done: self._pending.pop(done, None))
        arrival = max(self._last_arrival, self._loop.time() + self._ensemble.latency())
        self._last_arrival = arrival
        self._loop.call_at(arrival, self._arrive, self.session_id, operation, answer, is_write)
        return await answer

    async def _usable(self) -> None:
        try:
            async with asyncio.timeout(self.session_timeout_ms / 1000):
                await self._connected.wait()
        except TimeoutError:
            raise ConnectionLost("no connection") from None
        if self._is_closed:
            raise ConnectionLost("closed")

    def _arrive(
        self,
        session: int,
        operation: Callable[[], Any],
        answer: asyncio.Future[Any],
        is_write: bool,
    ) -> None:
        if self._ensemble.is_stalled:
            self._ensemble.held.append(lambda: self._arrive(session, operation, answer, is_write))
            return
        if answer.done():
            return
        if session not in self._ensemble.alive:
            answer.set_exception(SessionExpired("expired"))
            return
        try:
            result = operation()
        except Exception as error:  # noqa: BLE001 - the answer carries it
            answer.set_exception(error)
            return
        if self._answers_to_lose:
            self._answers_to_lose -= 1
            answer.set_exception(ConnectionLost("answer lost"))
            return
        if is_write and self._writes_to_lose:
            self._writes_to_lose -= 1
            answer.set_exception(ConnectionLost("answer to a write lost"))
            return
        answer.set_result(result)
