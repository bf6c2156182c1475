"""Settings of nodes that may change while they run: this node's own, then those of all nodes.

Source: docs/spec/cluster.md §1.6 and §5 (precedence); KIP-226.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from barnabas.client.zookeeper.interface import ZooKeeper, read_if_any
from barnabas.protocol.settings import ConfigError
from barnabas.protocol.zookeeper import znodes

from .dynamic_settings import dynamic
from .log_config import LogConfig
from .node_config import NodeConfig, load

log = logging.getLogger(__name__)

Layer = Mapping[str, str]
"""Names to values as they were given."""


class DynamicNodeConfig:
    """What ZooKeeper says on top of this node's file; read again when a change is announced."""

    def __init__(self, zookeeper: ZooKeeper, node_id: int, file: NodeConfig) -> None:
        self.on_change: list[Callable[[], None]] = []
        """Called when :attr:`current` is another than before, or what it names may be."""
        self.own: Layer = {}
        """Of this node, by Kafka's names for nodes."""
        self.shared: Layer = {}
        """Of all nodes; this node's own are stronger."""
        self.file = file
        """What the node was started with."""
        self.current = file
        """What is in force."""
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._is_loaded = False

    @property
    def log_defaults(self) -> LogConfig:
        """In force for every topic that sets nothing itself."""
        return self.current.log_defaults

    def effective(self, own: Layer, shared: Layer) -> NodeConfig:
        """What would be in force with these; raises ConfigError naming what cannot be."""
        overrides = {**dynamic(shared, of_all=True), **dynamic(own, of_all=False)}
        config = load({**self.file.values, **overrides})
        return _keeping_inner_listener(config, self.current) if self._is_loaded else config

    async def load(self) -> None:
        """Read both znodes; what makes no sense there is left out, and logged."""
        shared: Layer = dynamic(await self._read(None), of_all=True)
        own: Layer = dynamic(await self._read(self._node_id), of_all=False)
        try:
            own, shared, config = self._sensible(own, shared)
        except ConfigError as error:
            log.error("kept the former settings of the node: %s", error)
            return
        self._is_loaded = True
        if (dict(own), dict(shared)) == (self.own, self.shared):
            return
        former = self.current
        self.own, self.shared, self.current = own, shared, config
        log.info("changed the settings of the node own=%s shared=%s", sorted(own), sorted(shared))
        for warning in config.warnings:
            if warning not in former.warnings:
                log.warning("%s", warning)
        self.notify()

    def notify(self) -> None:
        """Have everybody look at :attr:`current` once more."""
        for callback in self.on_change:
            callback()

    def _sensible(self, own: Layer, shared: Layer) -> tuple[Layer, Layer, NodeConfig]:
        """Both with the former values of what has no sense now; raises ConfigError if none do."""
        try:
            return own, shared, self.effective(own, shared)
        except ConfigError as error:
            log.error("ignored settings of the node: %s", error)
            wrong = {problem.partition(":")[0].partition("=")[0] for problem in error.problems}
        own, shared = _mended(own, self.own, wrong), _mended(shared, self.shared, wrong)
        return own, shared, self.effective(own, shared)

    async def _read(self, node_id: int | None) -> Layer:
        found = await read_if_any(self._zookeeper, znodes.broker_config_path(node_id))
        try:
            return znodes.EntityConfig.from_json(found[0] if found else b"").config
        except ValueError as error:
            log.error("ignored settings that cannot be read node=%s: %s", node_id, error)
            return {}


def _mended(layer: Layer, former: Layer, wrong: Collection[str]) -> Layer:
    kept = {name: former[name] for name in wrong if name in layer and name in former}
    return {name: text for name, text in layer.items() if name not in wrong} | kept


def _keeping_inner_listener(config: NodeConfig, current: NodeConfig) -> NodeConfig:
    """The inter-broker listener stays where it is: all that nodes say to each other uses it.

    Raises ConfigError when it is to be bound elsewhere.
    """
    name = current.inter_broker_listener
    (bound,) = (endpoint for endpoint in current.listeners if endpoint.listener == name)
    (wanted,) = (endpoint for endpoint in config.listeners if endpoint.listener == name)
    if wanted == bound:
        return config
    if wanted.port and wanted != bound:
        raise ConfigError(f"listeners={wanted}: bound as {bound}, and moves only with a restart")
    kept = tuple(bound if endpoint == wanted else endpoint for endpoint in config.listeners)
    return replace(config, listeners=kept)
