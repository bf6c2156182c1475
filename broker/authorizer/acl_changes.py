"""Follows the access control lists in ZooKeeper: a note says what to read again.

First the notes are watched, then everything is read, then the node serves: what changes in between
has left a note. A note is lost when its writer dies before it: so all entries are read again now
and then.
Source: docs/spec/security.md §3 (S47 to S49).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from barnabas.client.zookeeper.interface import (
    NoNode,
    SessionState,
    ZooKeeper,
    ZooKeeperError,
    read_if_any,
)
from barnabas.protocol.acl import PatternType, ResourcePattern
from barnabas.protocol.errors import Refused
from barnabas.protocol.zookeeper import acl_znodes as znodes

from .acl_store import AclStore

log = logging.getLogger(__name__)

NOTE_AGE_MS_MAX: Final = 15 * 60 * 1000
"""Notes are deleted when they are older: every node has seen them, or reads all."""
COMPARE_S: Final = 300.0
"""How often everything is read again."""
RETRY_S: Final = 1.0
"""After a failure, and while a note is owed."""


class AclChanges:
    """Keeps the cache as ZooKeeper has it; a note says only what to read, and is not trusted."""

    def __init__(self, zookeeper: ZooKeeper, store: AclStore, now_ms: Callable[[], int]) -> None:
        self._zookeeper = zookeeper
        self._store = store
        self._now_ms = now_ms
        self._noted = asyncio.Event()
        self._must_compare = False
        self._seen: dict[PatternType, dict[str, int]] = {kind: {} for kind in znodes.CHANGES}
        """Notes that were followed, as long as they stand there, and when each was made."""
        store.on_owed = self._noted.set
        zookeeper.on_state.append(self._session_changed)

    async def load(self) -> None:
        """Watch for notes from here on, and read everything."""
        await self._store.create_directories()
        for kind in znodes.CHANGES:
            self._seen[kind] = dict.fromkeys(await self._notes(kind), self._now_ms())
        await self._store.refresh_all()

    async def run(self) -> None:
        """Follow the notes until cancelled; :meth:`load` comes first."""
        loop = asyncio.get_running_loop()
        compare_at = loop.time() + COMPARE_S
        while True:
            await self._wait(compare_at)
            self._noted.clear()
            if loop.time() >= compare_at:
                compare_at, self._must_compare = loop.time() + COMPARE_S, True
            try:
                await self._follow()
                if self._must_compare:
                    await self._compare()
                for pattern in list(self._store.owed):
                    await self._store.refresh(pattern)
                    await self._store.announce(pattern)
            except ZooKeeperError as error:
                log.warning("could not read changed access control lists: %r", error)
                self._must_compare = True
                await asyncio.sleep(RETRY_S)
                self._noted.set()

    async def _wait(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        left_s = max(0.0, until - loop.time())
        if self._store.owed:
            left_s = min(left_s, RETRY_S)
        try:
            async with asyncio.timeout(left_s):
                await self._noted.wait()
        except TimeoutError:
            pass

    def _session_changed(self, state: SessionState) -> None:
        """Watches do not outlive a connection: look for what was noted meanwhile."""
        if state is SessionState.CONNECTED:
            self._noted.set()

    async def _compare(self) -> None:
        """Read everything: a note may have been lost, or cannot be read."""
        self._must_compare = False
        count = await self._store.refresh_all()
        if count:
            log.warning("found access control lists that nobody had announced count=%d", count)

    async def _notes(self, kind: PatternType) -> list[str]:
        return await self._zookeeper.children(znodes.CHANGES[kind], self._noted.set)

    async def _follow(self) -> None:
        for kind in znodes.CHANGES:
            names, seen = await self._notes(kind), self._seen[kind]
            patterns: dict[ResourcePattern, None] = {}
            made: dict[str, int] = {}
            # Not those above the last number: one made by hand may have the highest there is.
            for name in sorted(names):
                if name in seen:
                    made[name] = seen[name]
                    continue
                found = await read_if_any(self._zookeeper, f"{znodes.CHANGES[kind]}/{name}")
                if found is not None and name.startswith(znodes.CHANGE_PREFIX):
                    made[name] = found[1].ctime_ms
                    self._note_pattern(kind, name, found[0], patterns)
            for pattern in patterns:
                await self._store.refresh(pattern)
            self._seen[kind] = made
            await self._delete_old(kind, made)

    def _note_pattern(
        self, kind: PatternType, name: str, data: bytes, patterns: dict[ResourcePattern, None]
    ) -> None:
        try:
            pattern = znodes.change_from_json(kind, data)
            znodes.resource_path(pattern)
        except (ValueError, Refused) as error:
            log.warning("reads all entries for a note that cannot be read name=%s: %s", name, error)
            self._must_compare = True
            return
        patterns[pattern] = None

    async def _delete_old(self, kind: PatternType, made: dict[str, int]) -> None:
        before = self._now_ms() - NOTE_AGE_MS_MAX
        for name in [name for name, made_ms in made.items() if made_ms < before]:
            try:
                await self._zookeeper.delete(f"{znodes.CHANGES[kind]}/{name}")
            except NoNode:
                continue
