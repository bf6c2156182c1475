"""Follows the delegation tokens in ZooKeeper: a note says which to read again.

First the notes are watched, then everything is read, then the node serves. A note is lost when its
writer dies before it: so all tokens are read again now and then.
Source: docs/spec/security.md §2 (S37); Kafka 3.9 ZkNodeChangeNotificationListener.
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
    ZooKeeperError,
    ensure,
    read_if_any,
)
from barnabas.protocol.zookeeper import token_znodes as znodes
from barnabas.protocol.zookeeper.token_znodes import TokenRecord

from .token_cache import TokenCache

log = logging.getLogger(__name__)

NOTE_AGE_MS_MAX: Final = 15 * 60 * 1000
"""Notes are deleted when they are older: every node has seen them, or reads all."""
COMPARE_S: Final = 300.0
"""How often everything is read again."""
RETRY_S: Final = 1.0
"""After a failure."""
_CHUNK: Final = 200


class TokenChanges:
    """Keeps the cache as ZooKeeper has it; a note says only what to read, and is not trusted."""

    def __init__(self, zookeeper: ZooKeeper, cache: TokenCache, now_ms: Callable[[], int]) -> None:
        self._zookeeper = zookeeper
        self._cache = cache
        self._now_ms = now_ms
        self._noted = asyncio.Event()
        self._seen: dict[str, int] = {}
        """Notes that were followed, as long as they stand there, and when each was made."""
        self._order = asyncio.Lock()
        """Held from reading until the cache has it: what is older must never replace it."""
        zookeeper.on_state.append(self._session_changed)

    async def load(self) -> None:
        """Watch for notes from here on, and read everything."""
        for path in znodes.PERSISTENT_PATHS:
            await ensure(self._zookeeper, path)
        self._seen = dict.fromkeys(await self._notes(), self._now_ms())
        await self._read_all()

    async def run(self) -> None:
        """Follow the notes until cancelled; :meth:`load` comes first."""
        loop = asyncio.get_running_loop()
        compare_at = loop.time() + COMPARE_S
        while True:
            try:
                async with asyncio.timeout_at(compare_at):
                    await self._noted.wait()
            except TimeoutError:
                pass
            self._noted.clear()
            try:
                if loop.time() >= compare_at:
                    await self._read_all()
                    compare_at = loop.time() + COMPARE_S
                await self.follow()
            except ZooKeeperError as error:
                log.warning("could not read changed delegation tokens: %r", error)
                compare_at = min(compare_at, loop.time() + RETRY_S)

    async def follow(self) -> None:
        """Read what was noted since; whoever needs what another node just did calls this."""
        names = await self._notes()
        seen = self._seen
        made: dict[str, int] = {}
        changed: dict[str, None] = {}
        for name in sorted(names):
            if name in seen:
                made[name] = seen[name]
                continue
            found = await read_if_any(self._zookeeper, f"{znodes.CHANGES}/{name}")
            if found is not None and name.startswith(znodes.CHANGE_PREFIX):
                made[name] = found[1].ctime_ms
                changed[found[0].decode(errors="replace")] = None
        await self.read(filter(znodes.is_token_id, changed))
        self._seen = made
        await self._delete_old(made)

    async def read(self, token_ids: Iterable[str]) -> None:
        """Read single tokens again, many at a time."""
        ordered = sorted(token_ids)
        for start in range(0, len(ordered), _CHUNK):
            chunk = ordered[start : start + _CHUNK]
            async with self._order:
                found = await asyncio.gather(*map(self._read_one, chunk))
                for token_id, record in zip(chunk, found, strict=True):
                    self._cache.put(token_id, record)

    async def _read_all(self) -> None:
        names = await self._zookeeper.children(znodes.TOKENS)
        known = {token.record.token_id for token in self._cache.tokens}
        await self.read(known.union(filter(znodes.is_token_id, names)))

    async def _read_one(self, token_id: str) -> TokenRecord | None:
        """None for a token that cannot be read: who cannot be checked does not come in."""
        found = await read_if_any(self._zookeeper, znodes.token_path(token_id))
        if found is None:
            return None
        try:
            return TokenRecord.from_json(token_id, found[0])
        except ValueError as error:
            log.error("ignored a delegation token that cannot be read id=%s: %s", token_id, error)
            return None

    async def _notes(self) -> list[str]:
        return await self._zookeeper.children(znodes.CHANGES, self._noted.set)

    def _session_changed(self, state: SessionState) -> None:
        """Watches do not outlive a connection: look for what was noted meanwhile."""
        if state is SessionState.CONNECTED:
            self._noted.set()

    async def _delete_old(self, made: dict[str, int]) -> None:
        before = self._now_ms() - NOTE_AGE_MS_MAX
        for name in [name for name, made_ms in made.items() if made_ms < before]:
            try:
                await self._zookeeper.delete(f"{znodes.CHANGES}/{name}")
            except NoNode:
                continue
