"""Quotas in ZooKeeper: all known here, read again when a change is announced, changed by request.

    /config/users/U  /config/clients/C  /config/users/U/clients/C  /config/ips/IP

Users' credentials stand in the same znodes: a change keeps what is no quota, and a znode goes with
its last setting. Source: docs/spec/security.md §4 (S57, S65); Kafka 3.9 AdminZkClient.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from barnabas.client.zookeeper.interface import (
    BadVersion,
    NodeExists,
    NoNode,
    NotEmpty,
    ZooKeeper,
    ZooKeeperError,
    read_if_any,
)
from barnabas.protocol.errors import ErrorCode, Refused
from barnabas.protocol.zookeeper import znodes

from .client_quotas import ClientQuotas
from .entities import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    IP_KEYS,
    ClientEntity,
    Default,
    Entity,
    IpEntity,
    Name,
    bounds_of,
    entity_of,
)
from .ip_connection_rates import IpConnectionRates, is_address

log = logging.getLogger(__name__)

KINDS: Final = ("users", "clients", "ips")
"""What stands below ``/config`` with quotas, and what change notes begin with."""
ATTEMPTS_MAX: Final = 20
"""Writes lost in a row to others who change the same entity."""
_CHUNK: Final = 200

T = TypeVar("T")

Bounds = Mapping[str, float]
Settings = Mapping[str, str]
Edit = Callable[[Settings], Settings]
"""From the settings of an entity as they are to those that are wanted; raises Refused."""


class QuotaStore:
    """Puts what ZooKeeper says in force; an announcement says only whose quotas to read."""

    def __init__(
        self, zookeeper: ZooKeeper, clients: ClientQuotas, addresses: IpConnectionRates
    ) -> None:
        self._zookeeper = zookeeper
        self._clients = clients
        self._addresses = addresses
        self._in_force: dict[Entity, Bounds] = {}

    async def load(self) -> None:
        """Read all there is; the announcements are watched from before."""
        found = await self.entities()
        for entity in set(self._in_force).difference(found):
            self._use(entity, {})
        await self._read(found)
        await self._use_addresses()

    async def announced(self, paths: Collection[str]) -> None:
        """Read again whom these paths are about."""
        entities = []
        for path in paths:
            try:
                entities.append(entity_of(path))
            except ValueError as error:
                log.warning("ignored an announcement about nobody: %s", error)
        await self._read(entities)

    async def change(self, entity: Entity, edit: Edit) -> None:
        """Change the settings of one entity, in force here when this returns.

        Raises what ``edit`` raises, and ZooKeeperError.
        """
        path = f"{znodes.CONFIG}/{entity.path}"
        for _ in range(ATTEMPTS_MAX):
            found = await read_if_any(self._zookeeper, path)
            try:
                before = _settings(found[0] if found else b"")
            except ValueError as error:
                reason = f"{path} cannot be read: {error}"
                raise Refused(ErrorCode.INVALID_CONFIG, reason) from None
            wanted = edit(before)
            try:
                if wanted:
                    data = znodes.EntityConfig(config=wanted).to_json()
                    if found is None:
                        await self._zookeeper.create(path, data, parents=True)
                    else:
                        await self._zookeeper.set(path, data, found[1].version)
                elif found is not None:
                    await self._remove(entity, found[1].version)
            except (BadVersion, NodeExists, NoNode):
                continue
            note = znodes.ConfigChange(entity_path=entity.path).to_json()
            await self._zookeeper.create(znodes.CONFIG_CHANGE_PREFIX, note, sequence=True)
            await self._read([entity])
            return
        raise ZooKeeperError(f"others keep changing {path}")

    async def bounds_of_each(self, entities: list[Entity]) -> AsyncIterator[tuple[Entity, Bounds]]:
        """What each is bound by as ZooKeeper has it now, many read at a time."""
        for chunk in _chunks(entities):
            read = await asyncio.gather(*map(self._bounds, chunk))
            for entity, bounds in zip(chunk, read, strict=True):
                yield entity, bounds

    async def entities(self, kinds: Iterable[str] = KINDS) -> list[Entity]:
        """Everybody who has a znode there, with quotas or without."""
        found: list[Entity] = []
        for kind in kinds:
            paths = [f"{kind}/{name}" for name in await self._children(kind)]
            if kind == "users":
                for chunk in _chunks(list(paths)):
                    below = await asyncio.gather(*(self._children(f"{p}/clients") for p in chunk))
                    paths += [
                        f"{path}/clients/{name}"
                        for path, names in zip(chunk, below, strict=True)
                        for name in names
                    ]
            for path in paths:
                try:
                    found.append(entity_of(path))
                except ValueError as error:
                    log.warning("ignored quotas of nobody path=%s: %s", path, error)
        return found

    async def _read(self, entities: list[Entity]) -> None:
        async for entity, bounds in self.bounds_of_each(entities):
            self._use(entity, bounds)
        if any(isinstance(entity, IpEntity) for entity in entities):
            await self._use_addresses()

    async def _bounds(self, entity: Entity) -> Bounds:
        """What an entity is bound by; as before where that cannot be read."""
        keys = IP_KEYS if isinstance(entity, IpEntity) else CLIENT_KEYS
        found = await read_if_any(self._zookeeper, f"{znodes.CONFIG}/{entity.path}")
        try:
            return bounds_of(_settings(found[0] if found else b""), keys)
        except ValueError as error:
            log.error("kept the former quotas of %s: %s", entity.path, error)
            return self._in_force.get(entity, {})

    def _use(self, entity: Entity, bounds: Bounds) -> None:
        if bounds == self._in_force.get(entity, {}):
            return
        if bounds:
            self._in_force[entity] = bounds
        else:
            self._in_force.pop(entity, None)
        log.info("changed quotas of=%s bounds=%s", entity.path, dict(bounds))
        if isinstance(entity, ClientEntity):
            self._clients.set(entity, bounds)

    async def _use_addresses(self) -> None:
        """Have the addresses bound, and those behind the host names, as they are now."""
        bounds: dict[Name, float] = {}
        for entity, found in list(self._in_force.items()):
            if isinstance(entity, IpEntity):
                for name in await addresses_of(entity.ip):
                    bounds[name] = found[CONNECTION_CREATION_RATE]
        self._addresses.replace(bounds)

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._zookeeper.children(f"{znodes.CONFIG}/{path}")
        except NoNode:
            return []

    async def _remove(self, entity: Entity, version: int) -> None:
        """Delete a znode without settings, and the parents that stood there for it alone.

        One with client ids below it stays, without settings: they are others' quotas.
        """
        path = f"{znodes.CONFIG}/{entity.path}"
        try:
            await self._zookeeper.delete(path, version)
        except NotEmpty:
            await self._zookeeper.set(path, znodes.EntityConfig(config={}).to_json(), version)
            return
        parts = entity.path.split("/")
        for end in range(len(parts) - 1, 1, -1):
            parent = f"{znodes.CONFIG}/{'/'.join(parts[:end])}"
            if not await self._removes_empty(parent):
                return

    async def _removes_empty(self, path: str) -> bool:
        found = await read_if_any(self._zookeeper, path)
        if found is None or _settings(found[0]):
            return False
        try:
            await self._zookeeper.delete(path, found[1].version)
        except (NotEmpty, BadVersion, NoNode):
            return False
        return True


async def addresses_of(name: Name) -> list[Name]:
    """The addresses behind an address or a host name; none where nobody knows it."""
    if isinstance(name, Default) or is_address(name):
        return [name]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: a label is empty or too long
        return []
    return list(dict.fromkeys(str(address[4][0]) for address in found))


def _settings(data: bytes) -> Settings:
    """Raises ValueError for a znode that cannot be read."""
    return znodes.EntityConfig.from_json(data).config if data else {}


def _chunks(items: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]
