"""Reads of znodes with one watch on each, all of which raise one flag.

Source: docs/spec/coordinator.md §6.3 (watch callbacks only set a flag; bursts coalesce).
"""

from __future__ import annotations

from collections.abc import Callable

from .interface import NoNode, Stat, ZooKeeper


class WatchedReads:
    """Reads znodes; ``changed`` is called when one that was read may be different by now.

    A znode that is read again before its watch fired is not watched twice: watches that never
    fire would pile up otherwise.
    """

    def __init__(self, zookeeper: ZooKeeper, changed: Callable[[], None]) -> None:
        self._zookeeper = zookeeper
        self._changed = changed
        self._armed: set[tuple[str, str]] = set()

    async def data(self, path: str) -> tuple[bytes, Stat] | None:
        """Data of a znode; None when it is not there, and then its creation is watched."""
        key = ("data", path)
        while True:
            watch = self._arm(key)
            try:
                return await self._zookeeper.get(path, watch)
            except NoNode:
                self._disarm(key, watch)
            if await self._is_absent(path):
                return None

    async def children(self, path: str) -> list[str]:
        """Names of the children; none when the znode is not there, which is watched as well."""
        key = ("children", path)
        while True:
            watch = self._arm(key)
            try:
                return await self._zookeeper.children(path, watch)
            except NoNode:
                self._disarm(key, watch)
            if await self._is_absent(path):
                return []

    async def _is_absent(self, path: str) -> bool:
        return await self._zookeeper.exists(path, self._arm(("exists", path))) is None

    def _arm(self, key: tuple[str, str]) -> Callable[[], None] | None:
        if key in self._armed:
            return None
        self._armed.add(key)

        def fired() -> None:
            self._armed.discard(key)
            self._changed()

        return fired

    def _disarm(self, key: tuple[str, str], watch: Callable[[], None] | None) -> None:
        if watch is not None:
            self._armed.discard(key)
