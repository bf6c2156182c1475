"""Access control lists in ZooKeeper: read, changed by version, and announced to every broker.

A change is read, edited and written on the condition that nobody wrote meanwhile; then it is in
this node's cache, then a note has the others read. Adding and removing entries can be done again,
so that a write whose answer was lost needs no more than to be asked for once more. Its note is
owed from before the write until it stands in ZooKeeper: one that a crash or an outage prevents is
made up for by the comparison of all versions (acl_changes.py).
Source: docs/spec/security.md §3 (S46, S49, S86); Kafka 3.9 AclAuthorizer.updateResourceAcls.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from barnabas.client.zookeeper.interface import (
    BadVersion,
    NodeExists,
    NoNode,
    PayloadTooLarge,
    ZooKeeper,
    ZooKeeperError,
    ensure,
    read_if_any,
)
from barnabas.protocol.acl import RESOURCE_TYPES, Acl, ResourcePattern
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import acl_znodes as znodes

from .acl import NO_ACLS, ResourceAcls
from .acl_cache import AclCache

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 50
"""Writes lost in a row to others who change the same entries."""
BACKOFF_S: Final = 0.005
"""Times the attempt, at most, and by chance: else nodes that write at once would lose in turn.

Kafka waits 100 to 150 ms, ten times at most, and then fails a change that nothing is wrong with.
"""
_CHUNK: Final = 200

Edit = Callable[[frozenset[Acl]], frozenset[Acl]]
"""From the entries as they are to those that are wanted."""


class _Change:
    """One change that was asked for, and who waits for it."""

    def __init__(
        self, edit: Edit, done: asyncio.Future[tuple[frozenset[Acl], frozenset[Acl]]]
    ) -> None:
        self._edit = edit
        self.done = done
        self._before: frozenset[Acl] = frozenset()
        self._after: frozenset[Acl] = frozenset()

    def apply(self, acls: frozenset[Acl]) -> frozenset[Acl]:
        """What the entries come to; the last time counts."""
        self._before, self._after = acls, self._edit(acls)
        return self._after

    def succeed(self) -> None:
        """It is in ZooKeeper."""
        if not self.done.done():
            self.done.set_result((self._before, self._after))

    def fail(self, error: BaseException) -> None:
        """It is not, or nobody knows."""
        if self.done.done():
            return
        if isinstance(error, Exception):
            self.done.set_exception(error)
        else:
            self.done.cancel()


class AclStore:
    """Reads and changes the entries of this cluster; ``cache`` learns of what is written here."""

    def __init__(self, zookeeper: ZooKeeper, cache: AclCache, rng: random.Random) -> None:
        self._zookeeper = zookeeper
        self._cache = cache
        self._rng = rng
        self.owed: dict[ResourcePattern, None] = {}
        """Patterns whose entries may be others than the notes say."""
        self.on_owed: Callable[[], None] = lambda: None
        """Called when a note could not be written, or nobody knows whether it has to be."""
        self._waiting: dict[ResourcePattern, list[_Change]] = {}
        """Changes that no attempt has taken up yet; whoever asks first carries all of them out."""
        self.order = asyncio.Lock()
        """Held from reading until the cache has it: what is older must never replace it."""

    async def create_directories(self) -> None:
        """Make the parents of all entries, which Kafka's brokers and tools expect to find."""
        for path in znodes.PERSISTENT_PATHS:
            await ensure(self._zookeeper, path)

    async def read(self, pattern: ResourcePattern) -> ResourceAcls:
        """The entries on one pattern as they stand in ZooKeeper."""
        path = f"{znodes.type_path(pattern.pattern_type, pattern.resource_type)}/{pattern.name}"
        found = await read_if_any(self._zookeeper, path)
        if found is None:
            return NO_ACLS
        data, stat = found
        try:
            return ResourceAcls(znodes.acls_from_json(data), stat.version)
        except ValueError as error:
            # What it forbade is not known: nobody but super users may do anything there.
            log.error("denies a resource whose entries cannot be read path=%r: %s", path, error)
            return ResourceAcls((), stat.version, is_readable=False)

    async def read_all(self) -> dict[ResourcePattern, ResourceAcls]:
        """All entries in ZooKeeper, many at a time."""
        found: dict[ResourcePattern, ResourceAcls] = {}
        for chunk in _chunks([pattern async for pattern in self._patterns()]):
            read = await asyncio.gather(*map(self.read, chunk))
            found.update(zip(chunk, read, strict=True))
        return found

    async def refresh(self, pattern: ResourcePattern) -> None:
        """Read one pattern's entries into the cache."""
        async with self.order:
            self._cache.put(pattern, await self.read(pattern))

    async def refresh_all(self) -> int:
        """Read everything into the cache; how many patterns were different."""
        async with self.order:
            return self._cache.put_all(await self.read_all())

    async def change(
        self, pattern: ResourcePattern, edit: Edit
    ) -> tuple[frozenset[Acl], frozenset[Acl]]:
        """Change the entries on one pattern; those of before and after.

        What is asked for while another change of them is under way is one write with what else is
        asked for by then. Raises ZooKeeperError, and Refused (42) for a name or a list that cannot
        be stored.
        """
        znodes.resource_path(pattern)
        change = _Change(edit, asyncio.get_running_loop().create_future())
        waiting = self._waiting.setdefault(pattern, [])
        waiting.append(change)
        if len(waiting) == 1:
            await self._carry_out(pattern)
        return await change.done

    async def _carry_out(self, pattern: ResourcePattern) -> None:
        """Write what waits for this pattern, and what came while others were written."""
        changes: list[_Change] = []
        try:
            for attempt in range(ATTEMPTS_MAX):
                if await self._attempt(pattern, changes):
                    break
                await asyncio.sleep(self._rng.random() * BACKOFF_S * attempt)
            else:
                raise ZooKeeperError(f"others keep changing {znodes.resource_path(pattern)}")
        except BaseException as error:
            changes += self._waiting.pop(pattern, ())
            for change in changes:
                change.fail(error)
            if not isinstance(error, Refused | ZooKeeperError):
                raise
            return
        for change in changes:
            change.succeed()

    async def _attempt(self, pattern: ResourcePattern, changes: list[_Change]) -> bool:
        """Read, edit and write once; False when somebody else wrote in between."""
        async with self.order:
            known = await self.read(pattern)
            changes += self._waiting.pop(pattern, ())
            if not known.is_readable:
                path = znodes.resource_path(pattern)
                raise Refused(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{path} in ZooKeeper cannot be read; mend or delete it there",
                )
            wanted = known.acls
            for change in changes:
                wanted = change.apply(wanted)
            if wanted == known.acls:
                self._cache.put(pattern, known)
                return True
            self.owed[pattern] = None
            try:
                version = await self._write(pattern, known, wanted)
            except ZooKeeperError:
                self.on_owed()  # perhaps it was written
                raise
            if version is None:
                return False
            self._cache.put(pattern, ResourceAcls(wanted, version))
        await self.announce(pattern)
        return True

    async def announce(self, pattern: ResourcePattern) -> None:
        """Tell every broker to read a pattern's entries again; fails into ``owed``."""
        prefix = f"{znodes.CHANGES[pattern.pattern_type]}/{znodes.CHANGE_PREFIX}"
        try:
            await self._zookeeper.create(prefix, znodes.change_to_json(pattern), sequence=True)
        except ZooKeeperError as error:
            log.warning("could not announce changed entries yet: %r", error)
            self.on_owed()
            return
        self.owed.pop(pattern, None)

    async def _write(
        self, pattern: ResourcePattern, known: ResourceAcls, wanted: frozenset[Acl]
    ) -> int | None:
        """Write, on the condition that nobody else did; the new version, None when somebody did."""
        zookeeper, path = self._zookeeper, znodes.resource_path(pattern)
        data = znodes.acls_to_json(wanted)
        try:
            if known is NO_ACLS:
                await zookeeper.create(path, data)
                return 0
            if wanted:
                return (await zookeeper.set(path, data, known.version)).version
            await zookeeper.delete(path, known.version)
        except (BadVersion, NodeExists, NoNode):
            return None
        except PayloadTooLarge:
            self.owed.pop(pattern, None)
            reason = "the entries on a resource are more than a znode can hold"
            raise Refused(ErrorCode.INVALID_REQUEST, reason) from None
        return 0

    async def _patterns(self) -> AsyncIterator[ResourcePattern]:
        for pattern_type in znodes.ROOTS:
            for resource_type in RESOURCE_TYPES:
                try:
                    names = await self._zookeeper.children(
                        znodes.type_path(pattern_type, resource_type)
                    )
                except NoNode:
                    continue
                for name in names:
                    yield ResourcePattern(resource_type, name, pattern_type)


def _chunks(patterns: list[ResourcePattern]) -> Iterator[list[ResourcePattern]]:
    for start in range(0, len(patterns), _CHUNK):
        yield patterns[start : start + _CHUNK]
