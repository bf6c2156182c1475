"""The ports of a node: bound first, so that all are known when the node registers.

Source: design.md decision 11; cluster.md sections 1.2 and 2.14.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from barnabas.protocol import znodes

from .config import NodeConfig
from .endpoints import Endpoint, advertised
from .liveness.liveness import Liveness
from .net.dispatch import Dispatcher
from .net.limits import Limits
from .net.listener import Listener

NODE_USER: Final = "barnabas"
"""The name that nodes prove the cluster's secret under."""


class Doors:
    """Every listener of a node, and the UDP port of its beacons beside the nodes' own one."""

    def __init__(self, config: NodeConfig, limits: Limits, liveness: Liveness) -> None:
        self._config = config
        self._limits = limits
        self._liveness = liveness
        self._listeners: list[Listener] = []
        self._endpoints: dict[str, Endpoint] = {}

    async def bind(self, dispatcher: Dispatcher) -> None:
        """Take every port; nothing is served yet. Raises OSError naming the listener."""
        secret = self._config.node.cluster_secret
        for bound in self._config.listeners:
            is_internal = bound.listener == self._config.inter_broker_listener
            listener = Listener(
                bound.listener,
                dispatcher,
                self._limits,
                is_internal=is_internal,
                passwords={NODE_USER: secret} if is_internal and secret else None,
            )
            self._listeners.append(listener)
            try:
                port = await listener.bind(bound.host, bound.port)
            except OSError as error:
                raise OSError(f"listeners={bound}: {error.strerror or error}") from error
            if is_internal:
                await self._liveness.open(bound.host, port)
            told = self._config.advertised.get(bound.listener)
            self._endpoints[bound.listener] = advertised(told or bound, port)

    def registration(self, now_ms: int) -> znodes.BrokerRegistration:
        """What others are told of this node, once the ports are bound."""
        return znodes.BrokerRegistration(
            endpoints={name: (each.host, each.port) for name, each in self._endpoints.items()},
            security={name: each.protocol for name, each in self._endpoints.items()},
            timestamp=now_ms,
            rack=self._config.node.broker_rack,
            roles=self._config.node.node_roles,
            sends_beacons=self._liveness.beacons is not None,
        )

    def address(self, listener: str) -> tuple[str, int]:
        """Where others dial a listener of ours, once it is bound."""
        endpoint = self._endpoints[listener]
        return endpoint.host, endpoint.port

    def connections(self) -> Mapping[str, int]:
        """How many are open, by listener."""
        return {each.name: len(each.connections) for each in self._listeners}

    def serve(self) -> Mapping[str, int]:
        """Answer from now on; the bound port of each listener."""
        for listener in self._listeners:
            listener.serve()
        return {listener.name: listener.port for listener in self._listeners}

    async def close(self) -> None:
        """Serve nobody any more."""
        await asyncio.gather(*(listener.close() for listener in self._listeners))
