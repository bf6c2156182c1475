"""Announcements of changed settings in ZooKeeper: each is followed once, and deleted when old.

An announcement says only whose settings to read again; its content is not trusted. Source:
docs/spec/cluster.md §1.6.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.client.zookeeper.interface import (
    NoNode,
    SessionState,
    ZooKeeper,
    read_if_any,
)
from barnabas.protocol.zookeeper import znodes

log = logging.getLogger(__name__)

NOTE_AGE_MS_MAX: Final = 15 * 60 * 1000
"""Announcements are deleted when they are older: every node has seen them, or reads all."""


class ConfigAnnouncements:
    """Those below one znode. Watches do not outlive a connection: after one it looks again."""

    def __init__(self, zookeeper: ZooKeeper, prefix: str, now_ms: Callable[[], int]) -> None:
        """``prefix``: what announcements are created under, ZooKeeper appends ten digits."""
        self._zookeeper = zookeeper
        self._parent, _, self._prefix = prefix.rpartition("/")
        self._now_ms = now_ms
        self._announced = asyncio.Event()
        self._seen: set[str] = set()
        """Announcements that were followed, as long as they stand there."""
        zookeeper.on_state.append(self._session_changed)

    async def begin(self) -> None:
        """Take those that stand there for followed, and watch for others from here on."""
        self._seen = set(await self._names())

    def wake(self) -> None:
        """Have :meth:`wait` return."""
        self._announced.set()

    async def wait(self) -> None:
        """Return when there may be new ones."""
        await self._announced.wait()
        self._announced.clear()

    async def read(self) -> tuple[set[str], list[str]]:
        """The paths that new ones name; with them what :meth:`followed` takes."""
        names = await self._names()
        entities: set[str] = set()
        # Not those above the last number: one made by hand may have the highest there is.
        for name in sorted(set(names) - self._seen):
            if name.startswith(self._prefix):
                entities |= await self._entity_named(name)
        return entities, names

    async def followed(self, names: list[str]) -> None:
        """These need no second look; old ones are deleted."""
        self._seen = set(names)
        await self._delete_old(names)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._announced.set()

    async def _names(self) -> list[str]:
        return await self._zookeeper.children(self._parent, self._announced.set)

    async def _entity_named(self, name: str) -> set[str]:
        found = await read_if_any(self._zookeeper, f"{self._parent}/{name}")
        if found is None:
            return set()
        try:
            return {znodes.ConfigChange.from_json(found[0]).entity_path}
        except ValueError:
            log.warning("ignored an announcement that cannot be read name=%s", name)
            return set()

    async def _delete_old(self, names: Iterable[str]) -> None:
        for name in names:
            path = f"{self._parent}/{name}"
            stat = await self._zookeeper.exists(path)
            if stat is None or self._now_ms() - stat.ctime_ms <= NOTE_AGE_MS_MAX:
                continue
            try:
                await self._zookeeper.delete(path)
            except NoNode:
                continue
