"""Settings of nodes that may change while they run: this node's own, then those of all nodes.

Source: cluster.md sections 1.6 and 5 (precedence); KIP-226.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.client.ensemble import ZooKeeper, read_if_any
from barnabas.protocol import znodes
from barnabas.protocol.settings import ConfigError, Setting, declared, parsed

from .storage.log_config import BROKER_SYNONYMS, FOREVER, LogConfig

log = logging.getLogger(__name__)

TOPIC_KEYS: Final[Mapping[str, str]] = {
    synonyms[0]: key for key, synonyms in BROKER_SYNONYMS.items()
}
"""A node's name for a setting of its logs to the topics' name; units are the same."""


def _rate(name: str) -> Setting:
    return Setting(
        name=name,
        field="",
        kind=int,
        default=FOREVER,
        meaning="bytes per second; accepted, nothing is throttled yet",
        least=0,
        most=None,
        choices=(),
    )


RATES: Final[Mapping[str, Setting]] = {
    name: _rate(name)
    for name in (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}
"""What kafka-reassign-partitions sets and takes back."""


def checked(overrides: Mapping[str, str], defaults: LogConfig) -> LogConfig:
    """The defaults of all logs with a node's dynamic settings on top.

    Raises ConfigError for a value that is none; settings that need a restart are not looked at.
    """
    for name in overrides.keys() & RATES.keys():
        parsed(RATES[name], overrides[name])
    logs = {TOPIC_KEYS[name]: text for name, text in overrides.items() if name in TOPIC_KEYS}
    return defaults.with_overrides(logs)


class NodeConfigs:
    """What ZooKeeper says on top of this node's file; read again when a change is announced."""

    def __init__(self, zookeeper: ZooKeeper, node_id: int, file_defaults: LogConfig) -> None:
        self.on_change: list[Callable[[], None]] = []
        """Called when :attr:`log_defaults` are others than before."""
        self.own: Mapping[str, str] = {}
        """Of this node, by Kafka's names for nodes; values as they were given."""
        self.shared: Mapping[str, str] = {}
        """Of all nodes; this node's own are stronger."""
        self.log_defaults = file_defaults
        """In force for every topic that sets nothing itself."""
        self._zookeeper = zookeeper
        self._node_id = node_id
        self._file_defaults = file_defaults

    async def load(self) -> None:
        """Read both znodes; what makes no sense there changes nothing and is logged."""
        shared = await self._read(None)
        own = await self._read(self._node_id)
        try:
            defaults = checked({**shared, **own}, self._file_defaults)
        except ConfigError as error:
            log.error("kept the former settings of the node: %s", error)
            return
        self.shared, self.own = shared, own
        if defaults != self.log_defaults:
            self.log_defaults = defaults
            log.info("changed the settings of the node own=%s shared=%s", dict(own), dict(shared))
            for told in self.on_change:
                told()

    async def _read(self, node_id: int | None) -> Mapping[str, str]:
        found = await read_if_any(self._zookeeper, znodes.broker_config_path(node_id))
        try:
            return znodes.EntityConfig.from_json(found[0] if found else b"").config
        except ValueError as error:
            log.error("ignored settings that cannot be read node=%s: %s", node_id, error)
            return {}


def fixed_in(overrides: Mapping[str, str]) -> list[str]:
    """The settings among ``overrides`` that cannot be changed while a node runs."""
    return sorted(overrides.keys() - TOPIC_KEYS.keys() - RATES.keys())


def dynamic_settings() -> Mapping[str, Setting]:
    """Every setting of nodes that may change while they run, by its name there."""
    logs = declared(LogConfig)
    return {**{name: logs[key] for name, key in TOPIC_KEYS.items()}, **RATES}
