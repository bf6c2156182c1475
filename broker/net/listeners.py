"""The ports of a node: bound first, so that all are known when the node registers.

They may change while it runs: what is new is bound and served, then told, then the rest is closed.
Source: docs/spec/cluster.md §1.2 and §2.14; KIP-226 (listeners at run time).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.broker.liveness.liveness import Liveness
from barnabas.broker.security.inter_broker_client import NODE_USER
from barnabas.broker.settings.endpoints import Endpoint, advertised
from barnabas.broker.settings.node_config import NodeConfig
from barnabas.protocol.settings import ConfigError
from barnabas.protocol.zookeeper import znodes

from .connection import Connection
from .dispatch import Dispatcher
from .limits import Limits
from .listener import Listener

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Door:
    """A listener and where the settings wanted it."""

    endpoint: Endpoint
    listener: Listener


class Doors:
    """Every listener of a node, and the UDP port of its beacons beside the nodes' own one."""

    def __init__(self, config: NodeConfig, limits: Limits, liveness: Liveness) -> None:
        self._config = config
        self._limits = limits
        self._liveness = liveness
        self._doors: dict[str, _Door] = {}
        self._leaving: list[_Door] = []
        self._endpoints: dict[str, Endpoint] = {}
        self._is_serving = False
        self._dispatcher: Dispatcher

    async def bind(self, dispatcher: Dispatcher) -> None:
        """Take every port; nothing is served yet. Raises OSError naming the listener."""
        self._dispatcher = dispatcher
        for endpoint in self._config.listeners:
            door = await self._bound(endpoint)
            if door.listener.is_internal:
                await self._liveness.open(endpoint.host, door.listener.port)
        self._endpoints = self._told_by(self._config)

    async def check(self, config: NodeConfig) -> set[tuple[str, int]]:
        """The addresses that would be told after :meth:`change`, where the port is known.

        Raises ConfigError naming whatever could not be bound or told.
        """
        problems: list[str] = []
        addresses: set[tuple[str, int]] = set()
        ours = {door.listener.port for door in self._doors.values()}
        for endpoint in config.listeners:
            told = config.advertised.get(endpoint.listener)
            try:
                address = advertised(told or endpoint, endpoint.port)
                if address.port:
                    addresses.add((address.host, address.port))
                if endpoint.port and endpoint.port not in ours:
                    await _try(endpoint)
            except ConfigError as error:
                problems += error.problems
            except OSError as error:
                problems.append(f"listeners={endpoint}: {error.strerror or error}")
        if problems:
            raise ConfigError(*problems)
        return addresses

    async def change(self, config: NodeConfig) -> None:
        """Bind and serve what ``config`` adds or moves; :meth:`leave` closes what it drops.

        A listener that cannot be bound is logged, and tried again at the next change.
        """
        wanted = {each.listener: each for each in config.listeners}
        dropped = [door for door in self._doors.values() if door.endpoint != wanted.get(_of(door))]
        for door in dropped:
            assert not door.listener.is_internal, "the settings were judged"
            del self._doors[_of(door)]
        ports = {each.port for each in wanted.values() if each.listener not in self._doors}
        in_the_way = [door for door in dropped if door.listener.port in ports]
        self._leaving += [door for door in dropped if door not in in_the_way]
        await _close(in_the_way)
        for endpoint in wanted.values():
            if endpoint.listener not in self._doors:
                await self._open(endpoint, in_the_way)
        self._config = config
        self._endpoints = self._told_by(config)

    async def leave(self) -> None:
        """Close what was dropped: its connections end once what is answered is written."""
        leaving, self._leaving = self._leaving, []
        await _close(leaving)

    def registration(self, now_ms: int) -> znodes.BrokerRegistration:
        """What others are told of this node, once the ports are bound."""
        return znodes.BrokerRegistration(
            endpoints={name: (each.host, each.port) for name, each in self._endpoints.items()},
            security={name: each.protocol for name, each in self._endpoints.items()},
            timestamp=now_ms,
            rack=self._config.node.broker_rack,
            roles=self._config.node.node_roles,
            sends_beacons=self._liveness.beacons is not None,
            votes=self._liveness.votes,
        )

    def address(self, listener: str) -> tuple[str, int]:
        """Where others dial a listener of ours, once it is bound."""
        endpoint = self._endpoints[listener]
        return endpoint.host, endpoint.port

    def connections(self) -> Mapping[str, int]:
        """How many are open, by listener."""
        return {name: len(door.listener.connections) for name, door in self._doors.items()}

    def open_connections(self) -> list[Connection]:
        """Every one there is now."""
        doors = (*self._doors.values(), *self._leaving)
        return [one for door in doors for one in door.listener.connections]

    def serve(self) -> Mapping[str, int]:
        """Answer from now on; the bound port of each listener."""
        self._is_serving = True
        for door in self._doors.values():
            door.listener.serve()
        return {name: door.listener.port for name, door in self._doors.items()}

    async def close(self) -> None:
        """Serve nobody any more."""
        await _close([*self._doors.values(), *self._leaving])

    async def _open(self, endpoint: Endpoint, former: Iterable[_Door]) -> None:
        """One listener more; the one that was in its way comes back when that fails."""
        try:
            door = await self._bound(endpoint)
        except OSError as error:
            log.error("could not change a listener: %s", error)
            again = [each for each in former if _of(each) == endpoint.listener]
            if not again:
                return
            door = await self._bound(again[0].endpoint)
        door.listener.serve()
        log.info("serving another listener=%s port=%d", door.endpoint, door.listener.port)

    async def _bound(self, endpoint: Endpoint) -> _Door:
        secret = self._config.node.cluster_secret
        is_internal = endpoint.listener == self._config.inter_broker_listener
        listener = Listener(
            endpoint.listener,
            self._dispatcher,
            self._limits,
            is_internal=is_internal,
            passwords={NODE_USER: secret} if is_internal and secret else None,
        )
        door = self._doors[endpoint.listener] = _Door(endpoint, listener)
        try:
            await listener.bind(endpoint.host, endpoint.port)
        except OSError as error:
            if self._is_serving:
                del self._doors[endpoint.listener]
            raise OSError(f"listeners={endpoint}: {error.strerror or error}") from error
        return door

    def _told_by(self, config: NodeConfig) -> dict[str, Endpoint]:
        return {
            name: advertised(config.advertised.get(name) or door.endpoint, door.listener.port)
            for name, door in self._doors.items()
        }


def _of(door: _Door) -> str:
    return door.endpoint.listener


async def _close(doors: Iterable[_Door]) -> None:
    await asyncio.gather(*(door.listener.close() for door in doors))


async def _try(endpoint: Endpoint) -> None:
    """Bind and give back; raises OSError."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, endpoint.host or None, endpoint.port)
    server.close()
    await server.wait_closed()
