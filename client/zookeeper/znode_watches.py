"""Reads of znodes with one watch on each, all of which raise one flag.

Source: docs/spec/coordinator.md §6.3 (watch callbacks only set a flag; bursts coalesce).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from .interface import NoNode, Stat, Watch, ZooKeeper

_Found = TypeVar("_Found")
_Read = Callable[[str, Watch | None], Awaitable[_Found]]


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
        while True:
            try:
                return await self._watched("data", path, self._zookeeper.get)
            except NoNode:
                if await self._is_absent(path):
                    return None

    async def children(self, path: str) -> list[str]:
        """Names of the children; none when the znode is not there, which is watched as well."""
        while True:
            try:
                return await self._watched("children", path, self._zookeeper.children)
            except NoNode:
                if await self._is_absent(path):
                    return []

    async def _is_absent(self, path: str) -> bool:
        return await self._watched("exists", path, self._zookeeper.exists) is None

    async def _watched(self, kind: str, path: str, read: _Read[_Found]) -> _Found:
        """Read, with a watch unless one is set.

        Only a read that succeeds sets one. Whoever counted on the watch of a read that the end of
        its session failed would never hear of a change again.
        (``test_what_an_expired_session_could_not_read_is_watched_by_the_next``)
        """
        key = (kind, path)
        if key in self._armed:
            return await read(path, None)
        has_fired = False

        def fired() -> None:
            nonlocal has_fired
            has_fired = True
            self._armed.discard(key)
            self._changed()

        found = await read(path, fired)
        if not has_fired:  # it may fire between the answer and our next turn
            self._armed.add(key)
        return found
