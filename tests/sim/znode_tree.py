"""ZooKeeper's data tree in memory: znodes, versions, ephemerals, sequences, multi, watches.

Source: docs/spec/cluster.md §1.1 and what a real ZooKeeper 3.9 answers; the differential test in
tests/zookeeper compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.zookeeper.interface import (
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Set,
    Stat,
    ZooKeeperError,
)

Fire = Callable[[], None]


@dataclass
class Znode:
    data: bytes
    czxid: int
    owner: int
    time_ms: int
    version: int = 0
    mzxid: int = 0
    mtime_ms: int = 0
    children: set[str] = field(default_factory=set)
    creations: int = 0

    def stat(self) -> Stat:
        return Stat(
            version=self.version,
            czxid=self.czxid,
            mzxid=self.mzxid,
            ephemeral_owner=self.owner,
            ctime_ms=self.time_ms,
            mtime_ms=self.mtime_ms,
            children_count=len(self.children),
        )


class SimTree:
    """One consistent tree; every write that succeeds has a larger zxid than all before."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.zxid = 0
        self.nodes: dict[str, Znode] = {"/": Znode(b"", 0, 0, 0)}
        self.on_data: list[Callable[[str], None]] = []
        """Called with each path whose data was written or that is gone, as soon as that is so."""
        self._now_ms = now_ms
        self._undo: list[Callable[[], None]] = []
        self._events: list[tuple[str, str]] = []
        # Dictionaries, not sets: who watched first hears first, whatever the addresses are.
        self._data_watches: dict[str, dict[Fire, None]] = {}
        self._child_watches: dict[str, dict[Fire, None]] = {}

    def get(self, path: str, watch: Fire | None) -> tuple[bytes, Stat]:
        node = self._node(path)
        self._watch(self._data_watches, path, watch)
        return node.data, node.stat()

    def exists(self, path: str, watch: Fire | None) -> Stat | None:
        self._watch(self._data_watches, path, watch)
        return self.nodes[path].stat() if path in self.nodes else None

    def children(self, path: str, watch: Fire | None) -> list[str]:
        node = self._node(path)
        self._watch(self._child_watches, path, watch)
        return sorted(node.children)

    def write(self, session: int, operation: Op) -> Any:
        with self._transaction():
            return self._apply(session, operation)

    def multi(self, session: int, operations: tuple[Op, ...]) -> list[Any]:
        results = []
        with self._transaction():
            for index, operation in enumerate(operations):
                try:
                    results.append(self._apply(session, operation))
                except ZooKeeperError as error:
                    raise MultiFailed(index, error) from None
        return results

    def end_session(self, session: int) -> None:
        owned = [path for path, node in self.nodes.items() if node.owner == session]
        for path in owned:
            self.write(session, Delete(path))

    def forget(self, watch: Fire) -> None:
        for watches in (self._data_watches, self._child_watches):
            for path in [path for path, fires in watches.items() if watch in fires]:
                watches[path].pop(watch, None)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.zxid += 1
        self._undo.clear()
        self._events.clear()
        try:
            yield
        except ZooKeeperError:
            for undo in reversed(self._undo):
                undo()
            raise
        events = list(self._events)
        for told in self.on_data:
            for kind, path in events:
                if kind == "data":
                    told(path)
        for kind, path in events:
            self._fire(kind, path)

    def _apply(self, session: int, operation: Op) -> Any:
        match operation:
            case Create():
                return self._create(session, operation)
            case Set(path, data, version):
                return self._set(path, data, version)
            case Delete(path, version):
                return self._delete(path, version)
            case Check(path, version):
                self._expect(path, version)
                return None

    def _create(self, session: int, operation: Create) -> str:
        parent_path, name = _split(operation.path)
        parent = self._node(parent_path)
        if operation.sequence:
            name += f"{parent.creations:010d}"
        path = _join(parent_path, name)
        if path in self.nodes:
            raise NodeExists(path)
        if parent.owner:
            raise ZooKeeperError(f"{parent_path} is ephemeral")
        now = self._now_ms()
        owner = session if operation.ephemeral else 0
        node = Znode(operation.data, self.zxid, owner, now, mzxid=self.zxid, mtime_ms=now)
        self._put(path, node)
        parent.creations += 1
        self._undo.append(lambda: _uncount(parent))
        self._events += [("data", path), ("children", parent_path)]
        return path

    def _set(self, path: str, data: bytes, version: int) -> Stat:
        node = self._expect(path, version)
        before = (node.data, node.version, node.mzxid, node.mtime_ms)
        self._undo.append(lambda: _restore(node, before))
        node.data = data
        node.version += 1
        node.mzxid = self.zxid
        node.mtime_ms = self._now_ms()
        self._events.append(("data", path))
        return node.stat()

    def _delete(self, path: str, version: int) -> None:
        node = self._expect(path, version)
        if node.children:
            raise NotEmpty(path)
        self._remove(path)
        self._undo.append(lambda: self._put(path, node))
        self._events += [("data", path), ("children", path), ("children", _split(path)[0])]

    def _expect(self, path: str, version: int) -> Znode:
        node = self._node(path)
        if version not in (-1, node.version):
            raise BadVersion(path)
        return node

    def _node(self, path: str) -> Znode:
        if path not in self.nodes:
            raise NoNode(path)
        return self.nodes[path]

    def _put(self, path: str, node: Znode) -> None:
        parent, name = _split(path)
        self.nodes[path] = node
        self.nodes[parent].children.add(name)
        self._undo.append(lambda: self._remove(path))

    def _remove(self, path: str) -> None:
        parent, name = _split(path)
        self.nodes.pop(path, None)
        self.nodes[parent].children.discard(name)

    def _watch(self, watches: dict[str, dict[Fire, None]], path: str, watch: Fire | None) -> None:
        if watch is not None:
            watches.setdefault(path, {})[watch] = None

    def _fire(self, kind: str, path: str) -> None:
        watches = self._data_watches if kind == "data" else self._child_watches
        for fire in watches.pop(path, ()):
            fire()


def _uncount(parent: Znode) -> None:
    parent.creations -= 1


def _restore(node: Znode, before: tuple[bytes, int, int, int]) -> None:
    node.data, node.version, node.mzxid, node.mtime_ms = before


def _split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or "/", name


def _join(parent: str, name: str) -> str:
    return f"{parent.rstrip('/')}/{name}"
