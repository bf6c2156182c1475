"""Listeners that change while a node runs: bound and served, then told, then the former are closed.

Clients that are on a listener which goes away ask any other for metadata, which must know the new
ones by then. Source: KIP-226; docs/spec/cluster.md §1.2 (the registration is watched).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from barnabas.broker.lifecycle.registration import AlreadyRegistered, Registration
from barnabas.broker.settings.dynamic_node_config import DynamicNodeConfig
from barnabas.broker.settings.node_config import NodeConfig
from barnabas.client.zookeeper.interface import SessionState, ZooKeeper, ZooKeeperError
from barnabas.protocol.settings import ConfigError

from .connection_quotas import ConnectionQuotas
from .listeners import Listeners

log = logging.getLogger(__name__)


class ListenerReconfiguration:
    """Follows the node's settings; :meth:`run` is its life, from when the node is registered."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        settings: DynamicNodeConfig,
        listeners: Listeners,
        connection_quotas: ConnectionQuotas,
        now_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._connection_quotas = connection_quotas
        self._now_ms = now_ms
        self._due = asyncio.Event()
        self._is_unpublished = False
        settings.on_change.append(self._due.set)
        zookeeper.on_state.append(self._session_changed)

    async def run(self, registration: Registration) -> None:
        """Do what changed settings ask for, until cancelled."""
        published = self._listeners.registration(self._now_ms())
        while True:
            await self._due.wait()
            self._due.clear()
            await self._connection_quotas.resolve()
            try:
                await self._listeners.change(self._settings.current)
            except (ConfigError, OSError) as error:
                log.error("could not change the listeners: %s", error)
            wanted = self._listeners.registration(self._now_ms())
            if self._is_unpublished or replace(wanted, timestamp=published.timestamp) != published:
                self._is_unpublished = True
                try:
                    await registration.update(wanted)
                except ZooKeeperError as error:
                    log.warning("will tell of other endpoints later: %r", error)
                    continue
                except AlreadyRegistered as error:
                    log.error("tells of its former endpoints only: %s", error)
                published, self._is_unpublished = wanted, False
            await self._listeners.close_dropped()

    async def check(self, config: NodeConfig, registration: Registration) -> None:
        """Whether these listeners could be bound and told; raises ConfigError, ZooKeeperError."""
        addresses = await self._listeners.check(config)
        try:
            await registration.refuse_taken(addresses)
        except AlreadyRegistered as error:
            raise ConfigError(f"listeners: {error}") from None

    def _session_changed(self, state: SessionState) -> None:
        """What could not be told is told once ZooKeeper answers again."""
        if state is SessionState.CONNECTED and self._is_unpublished:
            self._due.set()
