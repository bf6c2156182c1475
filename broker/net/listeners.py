"""The ports of a node: bound first, so that all are known when the node registers.

They may change while it runs: what is new is bound and served, then told, then the rest is closed.
Source: docs/spec/cluster.md §1.2 and §2.14; KIP-226 (listeners at run time).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.broker.liveness.liveness import Liveness
from barnabas.broker.security.node_security import NodeSecurity
from barnabas.broker.settings.endpoints import Endpoint, advertised
from barnabas.broker.settings.node_config import NodeConfig, node_principals
from barnabas.protocol.settings import ConfigError
from barnabas.protocol.zookeeper import znodes
from barnabas.protocol.zookeeper.broker_registration import CONSUMER_GROUPS

from .connection import Connection
from .dispatch import Dispatcher
from .limits import Limits
from .listener import Listener

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _BoundListener:
    """A listener and where the settings wanted it."""

    endpoint: Endpoint
    listener: Listener


class Listeners:
    """Every listener of a node, and the UDP port of its beacons beside the nodes' own one."""

    def __init__(
        self, config: NodeConfig, limits: Limits, liveness: Liveness, security: NodeSecurity
    ) -> None:
        self._config = config
        self._terms = security.terms
        self._tls = security.tls
        self._limits = limits
        self._liveness = liveness
        self._listeners: dict[str, _BoundListener] = {}
        self._closing: list[_BoundListener] = []
        self._endpoints: dict[str, Endpoint] = {}
        self._is_serving = False
        self._dispatcher: Dispatcher

    async def bind(self, dispatcher: Dispatcher) -> None:
        """Take every port; nothing is served yet. Raises OSError naming the listener."""
        self._dispatcher = dispatcher
        for endpoint in self._config.listeners:
            bound = await self._bind(endpoint, self._config)
            if bound.listener.is_internal:
                await self._liveness.open(endpoint.host, bound.listener.port)
        self._endpoints = self._advertised_endpoints(self._config)

    async def check(self, config: NodeConfig) -> set[tuple[str, int]]:
        """The addresses that would be told after :meth:`change`, where the port is known.

        Raises ConfigError naming whatever could not be bound or told.
        """
        problems: list[str] = []
        addresses: set[tuple[str, int]] = set()
        ours = {bound.listener.port for bound in self._listeners.values()}
        for endpoint in config.listeners:
            configured = config.advertised.get(endpoint.listener)
            try:
                address = advertised(configured or endpoint, endpoint.port)
                if address.port:
                    addresses.add((address.host, address.port))
                if endpoint.port and endpoint.port not in ours:
                    await _check_port(endpoint)
            except ConfigError as error:
                problems += error.problems
            except OSError as error:
                problems.append(f"listeners={endpoint}: {error.strerror or error}")
        if problems:
            raise ConfigError(*problems)
        await self._tls.check(config)
        return addresses

    async def change(self, config: NodeConfig) -> None:
        """Bind and serve what ``config`` adds or moves; :meth:`leave` closes what it drops.

        A listener that cannot be bound is logged, and tried again at the next change.
        """
        await self._tls.use(config)
        wanted = {endpoint.listener: endpoint for endpoint in config.listeners}
        dropped = [
            bound
            for bound in self._listeners.values()
            if bound.endpoint != wanted.get(_name(bound))
        ]
        for bound in dropped:
            assert not bound.listener.is_internal, "the settings were judged"
            del self._listeners[_name(bound)]
        ports = {
            endpoint.port
            for endpoint in wanted.values()
            if endpoint.listener not in self._listeners
        }
        in_the_way = [bound for bound in dropped if bound.listener.port in ports]
        self._closing += [bound for bound in dropped if bound not in in_the_way]
        await _close(in_the_way)
        for endpoint in wanted.values():
            if endpoint.listener not in self._listeners:
                await self._open(endpoint, config, in_the_way)
        self._config = config
        self._endpoints = self._advertised_endpoints(config)

    async def close_dropped(self) -> None:
        """Close what was dropped: its connections end once what is answered is written."""
        closing, self._closing = self._closing, []
        await _close(closing)

    def registration(self, now_ms: int) -> znodes.BrokerRegistration:
        """What others are told of this node, once the ports are bound."""
        return znodes.BrokerRegistration(
            endpoints={
                name: (endpoint.host, endpoint.port) for name, endpoint in self._endpoints.items()
            },
            security={name: endpoint.protocol for name, endpoint in self._endpoints.items()},
            timestamp=now_ms,
            rack=self._config.node.broker_rack,
            roles=self._config.node.node_roles,
            sends_beacons=self._liveness.beacons is not None,
            votes=self._liveness.votes,
            features=CONSUMER_GROUPS if self._config.coordinator.offers_consumer_groups else {},
        )

    def address(self, listener: str) -> tuple[str, int]:
        """Where others dial a listener of ours, once it is bound."""
        endpoint = self._endpoints[listener]
        return endpoint.host, endpoint.port

    def connections(self) -> Mapping[str, int]:
        """How many are open, by listener."""
        return {name: len(bound.listener.connections) for name, bound in self._listeners.items()}

    def bound(self) -> Mapping[str, Listener]:
        """Every listener that is bound now, by name."""
        return {name: bound.listener for name, bound in self._listeners.items()}

    def open_connections(self) -> list[Connection]:
        """Every one there is now."""
        listeners = (*self._listeners.values(), *self._closing)
        return [one for bound in listeners for one in bound.listener.connections]

    def close_excess(self) -> None:
        """Close the longest idle where bounds were lowered, the nodes' own listener excepted."""
        quotas = self._limits.connection_quotas
        clients: list[Connection] = []
        count = quotas.excess_in_all
        for name, bound in self._listeners.items():
            found = _longest_idle(bound.listener.connections)
            of_listener = quotas.excess(name)
            for connection in found[:of_listener]:
                connection.close()
            if not bound.listener.is_internal:
                count -= of_listener
                clients += found[of_listener:]
        for connection in _longest_idle(clients)[: max(0, count)]:
            connection.close()

    def throttled(self) -> Mapping[str, int]:
        """How many connections are throttled now, by kind."""
        return Counter(one.throttle_kind for one in self.open_connections() if one.throttle_kind)

    def closed(self) -> Mapping[str, int]:
        """How many connections were closed by us, by reason, ever."""
        return self._limits.rejection_log.connections

    def serve(self) -> Mapping[str, int]:
        """Answer from now on; the bound port of each listener."""
        self._is_serving = True
        for bound in self._listeners.values():
            bound.listener.serve()
        return {name: bound.listener.port for name, bound in self._listeners.items()}

    async def close(self) -> None:
        """Serve nobody any more."""
        await _close([*self._listeners.values(), *self._closing])

    async def _open(
        self, endpoint: Endpoint, config: NodeConfig, former: Iterable[_BoundListener]
    ) -> None:
        """One listener more; the one that was in its way comes back when that fails."""
        try:
            bound = await self._bind(endpoint, config)
        except (ConfigError, OSError) as error:
            log.error("could not change a listener: %s", error)
            again = [
                former_listener
                for former_listener in former
                if _name(former_listener) == endpoint.listener
            ]
            if not again:
                return
            bound = await self._bind(again[0].endpoint, self._config)
        bound.listener.serve()
        log.info("serving another listener=%s port=%d", bound.endpoint, bound.listener.port)

    async def _bind(self, endpoint: Endpoint, config: NodeConfig) -> _BoundListener:
        name = endpoint.listener
        is_internal = name == config.inter_broker_listener
        asks = endpoint.protocol.startswith("SASL_")
        listener = Listener(
            name,
            self._dispatcher,
            self._limits,
            is_internal=is_internal,
            sasl=self._terms.of(name, config.listener_sasl.get(name)),
            tls=self._tls.of(name),
            node_principals=None if asks or not is_internal else node_principals(config.values),
        )
        bound = self._listeners[endpoint.listener] = _BoundListener(endpoint, listener)
        try:
            await listener.bind(endpoint.host, endpoint.port)
        except OSError as error:
            if self._is_serving:
                del self._listeners[endpoint.listener]
            raise OSError(f"listeners={endpoint}: {error.strerror or error}") from error
        return bound

    def _advertised_endpoints(self, config: NodeConfig) -> dict[str, Endpoint]:
        return {
            name: advertised(config.advertised.get(name) or bound.endpoint, bound.listener.port)
            for name, bound in self._listeners.items()
        }


def _longest_idle(connections: Iterable[Connection]) -> list[Connection]:
    """Those first, and of equal ones the oldest."""
    return sorted(connections, key=lambda connection: -connection.idle_s)


def _name(bound: _BoundListener) -> str:
    return bound.endpoint.listener


async def _close(listeners: Iterable[_BoundListener]) -> None:
    await asyncio.gather(*(bound.listener.close() for bound in listeners))


async def _check_port(endpoint: Endpoint) -> None:
    """Bind and give back; raises OSError."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, endpoint.host or None, endpoint.port)
    server.close()
    await server.wait_closed()
