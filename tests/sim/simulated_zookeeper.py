"""An ensemble in memory behind the same port as the real one: znodes, sessions, watches, multi.

Source: reliability.md section 5; behaviour compared with ZooKeeper 3.9 in tests/zookeeper.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from barnabas.client.ensemble import (
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionExpired,
    SessionState,
    Set,
    Stat,
    Watch,
    ZooKeeperError,
    checked,
)

Tree = dict[str, tuple[bytes, Stat]]


class Ensemble:
    """The znode tree that all sessions share; every change gets the next zxid."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._zxid = 0
        self._sequences: dict[str, int] = defaultdict(int)
        self._watches: dict[str, list[Watch]] = defaultdict(list)
        self.tree: Tree = {"/": (b"", self._stat(0))}
        self.sessions: dict[int, Session] = {}

    def open_session(self, loop: asyncio.AbstractEventLoop, chance: random.Random) -> Session:
        number = 0x1000 + len(self.sessions)
        session = self.sessions[number] = Session(self, number, loop, chance)
        return session

    def expire(self, number: int) -> None:
        """End a session as its time-out would: its ephemerals vanish, its owner is told."""
        session = self.sessions[number]
        session.end()
        for path in [p for p, (_, stat) in self.tree.items() if stat.ephemeral_owner == number]:
            self.apply([Delete(path)], number)

    def watch(self, key: str, watch: Watch) -> None:
        self._watches[key].append(watch)

    def apply(self, operations: list[Op], owner: int) -> list[Any]:
        """All of them or none; watches fire for what was applied."""
        before, zxid, counters = dict(self.tree), self._zxid, self._sequences.copy()
        self._zxid += 1
        results, touched = [], []
        for index, operation in enumerate(operations):
            try:
                result, keys = self._apply(operation, owner)
            except ZooKeeperError as error:
                self.tree, self._zxid, self._sequences = before, zxid, counters
                raise MultiFailed(index, error) from error
            results.append(result)
            touched += keys
        for key in touched:
            for watch in self._watches.pop(key, []):
                watch()
        return results

    def _apply(self, operation: Op, owner: int) -> tuple[Any, list[str]]:
        if isinstance(operation, Create):
            return self._create(operation, owner)
        data, stat = self._node(operation.path)
        if operation.version not in (-1, stat.version):
            raise BadVersion(operation.path)
        if isinstance(operation, Check):
            return None, []
        if isinstance(operation, Set):
            stat = self._restat(stat, version=stat.version + 1, mzxid=self._zxid)
            self.tree[operation.path] = (operation.data, stat)
            return stat, [f"data {operation.path}"]
        assert isinstance(operation, Delete)
        if stat.children_count:
            raise NotEmpty(operation.path)
        del self.tree[operation.path]
        self._adopt(_parent(operation.path), -1)
        return None, _keys_of_birth_and_death(operation.path)

    def _create(self, operation: Create, owner: int) -> tuple[str, list[str]]:
        path, parent = operation.path, _parent(operation.path)
        self._node(parent)
        if operation.sequence:
            path = f"{path}{self._sequences[parent]:010d}"
        if path in self.tree:
            raise NodeExists(path)
        self._sequences[parent] += 1
        self.tree[path] = (operation.data, self._stat(owner if operation.ephemeral else 0))
        self._adopt(parent, 1)
        return path, _keys_of_birth_and_death(path)

    def _node(self, path: str) -> tuple[bytes, Stat]:
        if path not in self.tree:
            raise NoNode(path)
        return self.tree[path]

    def _adopt(self, parent: str, difference: int) -> None:
        data, stat = self.tree[parent]
        count = stat.children_count + difference
        self.tree[parent] = (data, self._restat(stat, children_count=count))

    def _stat(self, owner: int) -> Stat:
        now = self._clock()
        return Stat(0, self._zxid, self._zxid, owner, now, now, 0)

    def _restat(self, stat: Stat, **changes: int) -> Stat:
        fields = {name: getattr(stat, name) for name in Stat.__slots__}
        return Stat(**(fields | changes))


class Session:
    """One client's session; every call takes a random moment and is answered in order."""

    def __init__(
        self,
        ensemble: Ensemble,
        number: int,
        loop: asyncio.AbstractEventLoop,
        chance: random.Random,
    ) -> None:
        self._ensemble = ensemble
        self._loop = loop
        self._chance = chance
        self._answered_last = 0.0
        self.session_id = number
        self.session_timeout_ms = 6000
        self.state = SessionState.CONNECTED
        self.on_state: list[Callable[[SessionState], None]] = []

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        await self._travel()
        found = self._ensemble.tree.get(path)
        if found is None:
            raise NoNode(path)
        self._arm(f"data {path}", watch)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        await self._travel()
        found = self._ensemble.tree.get(path)
        self._arm(f"data {path}", watch)
        return None if found is None else found[1]

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        await self._travel()
        if path not in self._ensemble.tree:
            raise NoNode(path)
        self._arm(f"children {path}", watch)
        return [p.rsplit("/", 1)[1] for p in self._ensemble.tree if p != "/" and _parent(p) == path]

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        if parents and _parent(path) != "/":
            try:
                await self.create(_parent(path), parents=True)
            except NodeExists:
                pass
        return str(await self._one(Create(path, data, ephemeral, sequence)))

    async def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        stat: Stat = await self._one(Set(path, data, version))
        return stat

    async def delete(self, path: str, version: int = -1) -> None:
        await self._one(Delete(path, version))

    async def multi(self, *operations: Op) -> list[Any]:
        await self._travel()
        done = self._ensemble.apply([checked(op) for op in operations], self.session_id)
        await self._travel()
        return done

    async def close(self) -> None:
        if self.state is not SessionState.LOST:
            self._ensemble.expire(self.session_id)

    def end(self) -> None:
        self.state = SessionState.LOST
        for told in list(self.on_state):
            self._loop.call_soon(told, SessionState.LOST)

    async def _one(self, operation: Op) -> Any:
        try:
            return (await self.multi(operation))[0]
        except MultiFailed as failed:
            raise failed.error from None

    async def _travel(self) -> None:
        """The time a message takes; messages of one session never overtake each other."""
        if self.state is SessionState.LOST:
            raise SessionExpired(f"session {self.session_id:x}")
        arrives = max(self._answered_last, self._loop.time() + self._chance.uniform(0.0001, 0.003))
        self._answered_last = arrives
        await asyncio.sleep(arrives - self._loop.time())

    def _arm(self, key: str, watch: Watch | None) -> None:
        if watch is not None:
            loop = self._loop
            self._ensemble.watch(key, lambda: loop.call_soon(watch) and None)


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


def _keys_of_birth_and_death(path: str) -> list[str]:
    return [f"data {path}", f"children {path}", f"children {_parent(path)}"]
