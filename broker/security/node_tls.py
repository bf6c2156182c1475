"""TLS of all listeners of a node, renewed while it runs.

Certificates are read again when their files have changed, when a setting of theirs has, and at
SIGHUP. What cannot be used is logged, and the former ones stay in force.
Source: docs/spec/security.md §1 (S12) and §6 (S72).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Mapping
from typing import Final

from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.settings.ssl_settings import SslSettings
from barnabas.protocol.settings import ConfigError

from .audit_log import AuditLog
from .ssl_contexts import Contexts, ListenerTls, load_contexts

log = logging.getLogger(__name__)

LOOK_S: Final = 60.0
"""How often files are looked at: who replaces one need not tell the node."""


class NodeTls:
    """By listener; :meth:`run` is its life. Raises ConfigError when something cannot be read."""

    def __init__(
        self,
        config: NodeConfig,
        renew: asyncio.Event | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """``renew`` is set when the operator wants everything read again: SIGHUP."""
        self._config = config
        self._inner = config.inter_broker_listener
        self._listeners: dict[str, ListenerTls] = {}
        self._renewal = asyncio.Lock()
        self._due = renew or asyncio.Event()
        self._audit = audit or AuditLog()
        for name in config.listener_tls:
            self.of(name)

    def of(self, listener: str) -> ListenerTls | None:
        """TLS of one listener, read now if it was not yet; None where none is spoken."""
        settings = self._config.listener_tls.get(listener)
        if settings is None:
            return None
        if listener not in self._listeners:
            self._listeners[listener] = self._made(listener, settings)
        return self._listeners[listener]

    def dialling(self) -> ssl.SSLContext | None:
        """For the next connection to another node; None where nodes speak in clear."""
        found = self.of(self._inner)
        return None if found is None else found.client

    @property
    def listeners(self) -> Mapping[str, ListenerTls]:
        """Those that speak TLS."""
        return self._listeners

    async def check(self, config: NodeConfig) -> None:
        """Whether :meth:`use` would take all of this; raises ConfigError."""
        problems: list[str] = []
        for name, settings in config.listener_tls.items():
            try:
                await self._prepared(name, settings)
            except ConfigError as error:
                problems += [f"{problem} (listener {name})" for problem in error.problems]
        if problems:
            raise ConfigError(*problems)

    async def use(self, config: NodeConfig) -> None:
        """Renew whatever has other settings now, or other files."""
        self._config = config
        for name in self._listeners.keys() - config.listener_tls.keys():
            del self._listeners[name]
        await self.renew()

    async def renew(self, *, is_forced: bool = False) -> None:
        """Read again what has changed; with ``is_forced`` all."""
        async with self._renewal:
            for name, current in list(self._listeners.items()):
                settings = self._config.listener_tls.get(name)
                if settings is None:
                    continue
                if not (is_forced or settings != current.settings or current.is_stale):
                    continue
                try:
                    current.use(await asyncio.to_thread(current.prepare, settings))
                    self._audit.certificate_read(
                        listener=name, not_after=current.not_after.isoformat()
                    )
                except ConfigError as error:
                    self._audit.certificate_read(listener=name, problem=str(error))
                    log.error("kept the former certificate listener=%s: %s", name, error)

    async def run(self) -> None:
        """Look at the files from time to time, until cancelled."""
        while True:
            is_forced = False
            try:
                await asyncio.wait_for(self._due.wait(), LOOK_S)
                is_forced = True
            except TimeoutError:
                pass
            self._due.clear()
            await self.renew(is_forced=is_forced)

    async def _prepared(self, name: str, settings: SslSettings) -> Contexts:
        current = self._listeners.get(name)
        if current is not None:
            return await asyncio.to_thread(current.prepare, settings)
        return await asyncio.to_thread(load_contexts, settings, is_dialled=name == self._inner)

    def _made(self, name: str, settings: SslSettings) -> ListenerTls:
        try:
            return ListenerTls(name, settings, is_internal=name == self._inner)
        except ConfigError as error:
            problems = (f"{problem} (listener {name})" for problem in error.problems)
            raise ConfigError(*problems) from None
