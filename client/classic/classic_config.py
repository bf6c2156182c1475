"""Settings of the classic consumer, under the names of Kafka 0.8 and 0.7.

Source: docs/spec/coordinator.md §8 (names, defaults, aliases) and §6.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.protocol.settings import ConfigError, declared, parse, setting, suggestion

from .classic_security import PREFIXES, ClassicSecurity

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
_ALIASES: Final = {
    "zk.connect": "zookeeper.connect",
    "zk.sessiontimeout.ms": "zookeeper.session.timeout.ms",
    "zk.connectiontimeout.ms": "zookeeper.connection.timeout.ms",
    "zk.synctime.ms": "zookeeper.sync.time.ms",
    "groupid": "group.id",
    "consumerid": "consumer.id",
    "autocommit.enable": "auto.commit.enable",
    "autocommit.interval.ms": "auto.commit.interval.ms",
    "autooffset.reset": "auto.offset.reset",
    "queuedchunks.max": "queued.max.message.chunks",
    "rebalance.retries.max": "rebalance.max.retries",
    "fetch.size": "fetch.message.max.bytes",
    "socket.buffersize": "socket.receive.buffer.bytes",
}
"""The names of Kafka 0.7; the defaults are those of 0.8 all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicConfig:
    """Settings of one member of a classic group. Raises ConfigError for values that cannot be."""

    zookeeper_connect: str = setting("zookeeper.connect", "", "host:port,...[/chroot], required")
    group_id: str = setting("group.id", "", "the group, required: letters, digits and . _ -")
    consumer_id: str | None = setting("consumer.id", None, "our id in the group, else generated")
    client_id: str | None = setting("client.id", None, "how brokers name us, else the group")
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms", 6_000, "how long others wait for us when we vanish", least=1
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms", None, "bound on connecting, else the session timeout"
    )
    zookeeper_sync_time_ms: int = setting(
        "zookeeper.sync.time.ms", 2_000, "how far a ZooKeeper server may lag behind", least=0
    )
    auto_commit_enable: bool = setting("auto.commit.enable", True, "commit by time")
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", 60_000, "time between two commits", least=1
    )
    auto_offset_reset: str = setting(
        "auto.offset.reset",
        "largest",
        "where to begin without a usable offset",
        choices=("earliest", "latest", "none", "smallest", "largest"),
    )
    offsets_storage: str = setting(
        "offsets.storage",
        "zookeeper",
        "which store is asked, and written first",
        choices=("zookeeper", "kafka"),
    )
    dual_commit_enabled: bool | None = setting(
        "dual.commit.enabled", None, "write the other store too, else only when storage is kafka"
    )
    offsets_channel_backoff_ms: int = setting(
        "offsets.channel.backoff.ms", 1_000, "longest wait before asking again", least=1
    )
    offsets_channel_socket_timeout_ms: int = setting(
        "offsets.channel.socket.timeout.ms", 10_000, "bound on one answer", least=1
    )
    offsets_commit_max_retries: int = setting(
        "offsets.commit.max.retries", 5, "of a commit that is not made by time", least=0
    )
    rebalance_max_retries: int = setting(
        "rebalance.max.retries", 4, "attempts of one rebalance", least=1
    )
    rebalance_backoff_ms: int | None = setting(
        "rebalance.backoff.ms", None, "wait between attempts, else zookeeper.sync.time.ms"
    )
    partition_assignment_strategy: str = setting(
        "partition.assignment.strategy",
        "range",
        "how partitions are shared, alike in all members",
        choices=("range", "roundrobin"),
    )
    queued_max_message_chunks: int = setting(
        "queued.max.message.chunks", 2, "fetched chunks that wait in one stream", least=1
    )
    fetch_message_max_bytes: int = setting(
        "fetch.message.max.bytes", 1 << 20, "asked for of a partition at once; it grows", least=1
    )
    fetch_min_bytes: int = setting("fetch.min.bytes", 1, "a broker waits for so much", least=0)
    fetch_wait_max_ms: int = setting("fetch.wait.max.ms", 100, "and no longer than this", least=0)
    num_consumer_fetchers: int = setting(
        "num.consumer.fetchers", 1, "accepted; one fetcher asks all brokers at once", least=1
    )
    refresh_leader_backoff_ms: int = setting(
        "refresh.leader.backoff.ms", 200, "wait before looking for a new leader", least=1
    )
    socket_timeout_ms: int = setting("socket.timeout.ms", 30_000, "bound on one fetch", least=1)
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes", 65_536, "accepted; the system sizes its buffers", least=1
    )
    consumer_timeout_ms: int = setting(
        "consumer.timeout.ms", -1, "raise ConsumerTimeout after so long without a message; -1 never"
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics", True, "filters pass over the brokers' own topics"
    )
    broker_listener_name: str | None = setting(
        "broker.listener.name",
        None,
        "listener of brokers to dial first, else their first one of security.protocol",
    )
    security: ClassicSecurity = field(default_factory=ClassicSecurity)
    """``security.protocol``, ``ssl.*``, ``sasl.*``, ``zookeeper.ssl.*`` and ``zookeeper.jaas.*``,
    as other clients and nodes have them."""

    def __post_init__(self) -> None:
        for item in declared(type(self)).values():
            value = getattr(self, item.field)
            if item.choices and value not in item.choices:
                raise ConfigError(f"{item.name}={value}: must be one of {', '.join(item.choices)}")
            if item.least is not None and value < item.least:
                raise ConfigError(f"{item.name}={value}: must be at least {item.least:g}")
        if not self.zookeeper_connect:
            raise ConfigError("zookeeper.connect is required")
        for name in ("group_id", "consumer_id", "client_id"):
            value = getattr(self, name)
            if value is not None and _NAME.fullmatch(value) is None:
                raise ConfigError(
                    f"{name.replace('_', '.')}={value}: letters, digits, '.', '_' and '-' only"
                )
        if self.fetch_wait_max_ms > self.socket_timeout_ms:
            raise ConfigError("fetch.wait.max.ms must not exceed socket.timeout.ms")

    @classmethod
    def of(cls, properties: Mapping[str, object]) -> ClassicConfig:
        """Read a consumer.properties; unknown names are refused, those of 0.7 are accepted.

        Values may be text or what the text means.
        """
        named = {_ALIASES.get(name, name): str(value) for name, value in properties.items()}
        known = declared(cls)
        security = {name: text for name, text in named.items() if name.startswith(PREFIXES)}
        own = {name: text for name, text in named.items() if name not in security}
        for name in own:
            if name not in known:
                raise ConfigError(f"{name}: unknown{suggestion(name, [*known, *_ALIASES])}")
        return parse(cls, own).but(security=ClassicSecurity.of(security))

    def but(self, **changes: Any) -> ClassicConfig:
        """The same with some values changed."""
        return dataclasses.replace(self, **changes)

    @property
    def is_dual(self) -> bool:
        """Both stores are written, and the larger offset is where reading begins."""
        if self.dual_commit_enabled is None:
            return self.offsets_storage == "kafka"
        return self.dual_commit_enabled

    @property
    def reset(self) -> str:
        """``earliest``, ``latest`` or ``none``, whatever it was called."""
        return _RESETS.get(self.auto_offset_reset, self.auto_offset_reset)

    @property
    def backoff_s(self) -> float:
        """Seconds between two attempts of a rebalance."""
        backoff_ms = self.rebalance_backoff_ms
        return (self.zookeeper_sync_time_ms if backoff_ms is None else backoff_ms) / 1000
