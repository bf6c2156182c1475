"""The settings of one node, under Kafka's names: declared here, parsed once, never changed.

Source: cluster.md section 5 (names, defaults, the three classes of names and their precedence).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from barnabas.coordinator.config import CoordinatorConfig
from barnabas.protocol.settings import ConfigError, declared, parse, setting, suggestion

from .endpoints import LOCAL_HOST, Endpoint, parse_endpoints, parse_protocol_map
from .kafka_names import REFUSED, SWITCHES, WITHOUT_MEANING
from .liveness.settings import LivenessSettings
from .metrics_settings import MetricsSettings
from .storage.cleaner_settings import CleanerSettings
from .storage.log_config import BROKER_SYNONYMS, LogConfig

ROLES = ("broker", "coordinator")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Who this node is and where it registers."""

    zookeeper_connect: str = setting(
        "zookeeper.connect", "", "host:port list of the ensemble, with an optional /chroot"
    )
    zookeeper_session_timeout_ms: int = setting(
        "zookeeper.session.timeout.ms", 18_000, "a node unheard of for so long is dead", least=1
    )
    zookeeper_connection_timeout_ms: int | None = setting(
        "zookeeper.connection.timeout.ms", None, "give up the start after this; unset: the session"
    )
    broker_id: int = setting("broker.id", -1, "-1: kept from the data directory, or generated")
    broker_id_generation_enable: bool = setting(
        "broker.id.generation.enable", True, "take an id from ZooKeeper when none is set"
    )
    reserved_broker_max_id: int = setting(
        "reserved.broker.max.id", 1000, "generated ids start above this", least=0
    )
    broker_rack: str | None = setting("broker.rack", None, "told to clients and other nodes")
    node_roles: tuple[str, ...] = setting(
        "node.roles", ROLES, "broker hosts topics, coordinator hosts groups", choices=ROLES
    )
    cluster_secret: str | None = setting(
        "cluster.secret", None, "what nodes prove to each other on the inter-broker listener"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """What is listened on, and how much a stranger may ask of this node's memory."""

    listeners: str = setting("listeners", "PLAINTEXT://127.0.0.1:9092", "NAME://host:port list")
    advertised_listeners: str | None = setting(
        "advertised.listeners", None, "what others dial; unset: the listeners"
    )
    protocol_map: str = setting(
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
        "NAME:PROTOCOL list",
    )
    inter_broker_listener_name: str = setting(
        "inter.broker.listener.name", "INTERNAL", "opened on a free port where it is not listed"
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", 104_857_600, "a longer frame closes its connection", least=1
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes", 268_435_456, "all requests held at once", least=1
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", 600_000, "a silent connection is closed after this", least=1
    )
    max_connections: int = setting("max.connections", 2_147_483_647, "on all listeners", least=1)
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", 2_147_483_647, "from one address", least=1
    )
    fetch_max_bytes: int = setting("fetch.max.bytes", 57_671_680, "one Fetch answer", least=1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """How topics come to be and go."""

    num_partitions: int = setting("num.partitions", 1, "of a topic that does not say", least=1)
    default_replication_factor: int = setting(
        "default.replication.factor", 1, "of a topic that does not say", least=1
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", True, "asking for a topic creates it"
    )
    delete_topic_enable: bool = setting("delete.topic.enable", True, "topics may be deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """How leadership is moved."""

    socket_timeout_ms: int = setting(
        "controller.socket.timeout.ms", 30_000, "a control request is sent again after", least=1
    )
    auto_leader_rebalance_enable: bool = setting(
        "auto.leader.rebalance.enable", True, "give leadership back to preferred replicas"
    )
    leader_imbalance_check_interval_s: int = setting(
        "leader.imbalance.check.interval.seconds", 300, "how often that is looked at", least=1
    )
    leader_imbalance_percentage: int = setting(
        "leader.imbalance.per.broker.percentage", 10, "moved above this share", least=0
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", True, "hand leadership over before stopping"
    )
    controlled_shutdown_max_retries: int = setting(
        "controlled.shutdown.max.retries", 3, "then stop anyway", least=0
    )
    controlled_shutdown_retry_backoff_ms: int = setting(
        "controlled.shutdown.retry.backoff.ms", 5000, "between two tries", least=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Where logs live and how often positions are written down."""

    log_dirs: tuple[str, ...] = setting("log.dirs", (), "comma list; unset: log.dir")
    log_dir: str = setting("log.dir", "", "one directory, used when log.dirs is unset")
    flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms", 1000, "how often flush.ms is looked at", least=1
    )
    recovery_point_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms", 60_000, "between recovery points", least=1
    )
    start_offset_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms", 60_000, "between log starts", least=1
    )
    high_watermark_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms", 5000, "between high watermarks", least=1
    )
    retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms", 300_000, "look for old segments this often", least=1
    )
    initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms", 30_000, "before the first such look", least=0
    )
    retention_policy: str = setting(
        "log.retention.policy.class",
        "barnabas.broker.storage.retention:TimeAndSize",
        "what decides which segments go, as module:Class",
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms", 86_400_000, "a silent producer is forgotten after", least=1
    )
    producer_id_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms", 600_000, "look for silent ones", least=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """How replicas are kept alike, and what readers may have remembered for them."""

    lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms", 30_000, "behind for longer, a replica is not in sync", least=1
    )
    fetch_wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms", 500, "a leader with nothing new answers after", least=0
    )
    fetch_min_bytes: int = setting(
        "replica.fetch.min.bytes", 1, "a leader waits for so much", least=0
    )
    fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes", 1_048_576, "of one partition in one answer", least=0
    )
    fetch_response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes", 10_485_760, "one answer to a follower", least=0
    )
    fetch_backoff_ms: int = setting(
        "replica.fetch.backoff.ms", 1000, "before a leader that failed is asked again", least=0
    )
    socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms", 30_000, "a leader that is silent for so long is gone", least=1
    )
    fetch_session_slots: int = setting(
        "max.incremental.fetch.session.cache.slots", 1000, "readers remembered at once", least=0
    )


SECTIONS: tuple[type[Any], ...] = (
    NodeSettings,
    NetworkSettings,
    TopicSettings,
    ControllerSettings,
    StorageSettings,
    CleanerSettings,
    ReplicationSettings,
    LivenessSettings,
    CoordinatorConfig,
    MetricsSettings,
)
"""Every class of settings that a node's file may fill, in the order of the generated table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """All settings of one node, checked against each other."""

    node: NodeSettings
    network: NetworkSettings
    topics: TopicSettings
    controller: ControllerSettings
    storage: StorageSettings
    cleaner: CleanerSettings
    replication: ReplicationSettings
    liveness: LivenessSettings
    coordinator: CoordinatorConfig
    metrics: MetricsSettings
    log_defaults: LogConfig
    listeners: tuple[Endpoint, ...]
    """What is bound: the inter-broker listener is among them."""
    advertised: Mapping[str, Endpoint]
    """By listener name, port 0 for the bound one; one missing here is advertised as bound."""
    warnings: tuple[str, ...] = ()
    """One line for each accepted name that has no meaning here."""

    @property
    def inter_broker_listener(self) -> str:
        """Upper-case name of the listener that control requests come on."""
        return self.network.inter_broker_listener_name.upper()

    @property
    def log_directories(self) -> tuple[Path, ...]:
        """At least one, in the order of the file."""
        return tuple(Path(name) for name in self.storage.log_dirs or (self.storage.log_dir,))


def load(values: Mapping[str, str]) -> NodeConfig:
    """The node that ``values`` describe; raises ConfigError naming the first wrong setting."""
    warnings = _judge_names(values)
    parts = {section: parse(section, values) for section in SECTIONS}
    node, network = parts[NodeSettings], parts[NetworkSettings]
    storage = parts[StorageSettings]
    if not node.zookeeper_connect:
        raise ConfigError("zookeeper.connect: must be set, for example to 127.0.0.1:2181")
    if not storage.log_dirs and not storage.log_dir:
        raise ConfigError("log.dirs: must be set, to the directory that holds this node's data")
    if not node.node_roles:
        raise ConfigError("node.roles: must name broker, coordinator or both")
    _check_id(node)
    _check_compaction(node, parts[CleanerSettings])
    protocols = parse_protocol_map(network.protocol_map)
    listeners = _with_inter_broker_listener(network, node, protocols)
    return NodeConfig(
        node=node,
        network=network,
        topics=parts[TopicSettings],
        controller=parts[ControllerSettings],
        storage=storage,
        cleaner=parts[CleanerSettings],
        replication=_checked_replication(parts[ReplicationSettings]),
        liveness=_checked_liveness(parts[LivenessSettings], node),
        coordinator=parts[CoordinatorConfig],
        metrics=parts[MetricsSettings],
        log_defaults=_log_defaults(values),
        listeners=listeners,
        advertised=_advertised(network, protocols, listeners),
        warnings=warnings,
    )


def _known_names() -> set[str]:
    names = {name for section in SECTIONS for name in declared(section)}
    return names | {synonym for synonyms in BROKER_SYNONYMS.values() for synonym in synonyms}


def _judge_names(values: Mapping[str, str]) -> tuple[str, ...]:
    known = _known_names()
    warnings = []
    for name in values:
        if name in known:
            continue
        if name in REFUSED and not (name in SWITCHES and values[name].lower() == "false"):
            raise ConfigError(f"{name}: {REFUSED[name]}")
        if name in WITHOUT_MEANING or name in REFUSED or name.startswith(("ssl.", "sasl.")):
            warnings.append(f"{name}: has no meaning here and is ignored")
            continue
        raise ConfigError(f"{name}: unknown{suggestion(name, known | WITHOUT_MEANING)}")
    return tuple(warnings)


def _check_id(node: NodeSettings) -> None:
    if node.broker_id < 0 and not node.broker_id_generation_enable:
        raise ConfigError("broker.id: must be set, since broker.id.generation.enable is false")
    if node.broker_id_generation_enable and node.broker_id > node.reserved_broker_max_id:
        raise ConfigError(
            f"broker.id={node.broker_id}: must not exceed reserved.broker.max.id="
            f"{node.reserved_broker_max_id} while broker.id.generation.enable is true"
        )


def _check_compaction(node: NodeSettings, cleaner: CleanerSettings) -> None:
    """The offsets topic is never deleted from: without compaction it only grows."""
    problem = "log.cleaner.enable=false" if not cleaner.is_enabled else "log.cleaner.threads=0"
    if "coordinator" in node.node_roles and not (cleaner.is_enabled and cleaner.threads):
        raise ConfigError(f"{problem}: the offsets topic must be compacted by its coordinators")


def _checked_replication(settings: ReplicationSettings) -> ReplicationSettings:
    """A follower that is caught up must be heard more often than its lag is judged."""
    wait_ms = settings.fetch_wait_max_ms
    for name, limit_ms in (
        ("replica.lag.time.max.ms", settings.lag_time_max_ms),
        ("replica.socket.timeout.ms", settings.socket_timeout_ms),
    ):
        if wait_ms > limit_ms:
            raise ConfigError(f"replica.fetch.wait.max.ms={wait_ms}: exceeds {name}={limit_ms}")
    return settings


def _checked_liveness(settings: LivenessSettings, node: NodeSettings) -> LivenessSettings:
    """Beacons prove by the secret whose they are, and several must fit into the timeout."""
    if settings.beacon_enable and not node.cluster_secret:
        raise ConfigError("beacon.enable: needs a cluster.secret, by which beacons are known")
    if settings.beacon_timeout_ms < 4 * settings.beacon_interval_ms:
        raise ConfigError(
            f"beacon.timeout.ms={settings.beacon_timeout_ms}: must be at least four times "
            f"beacon.interval.ms={settings.beacon_interval_ms}"
        )
    return settings


def _with_inter_broker_listener(
    network: NetworkSettings, node: NodeSettings, protocols: Mapping[str, str]
) -> tuple[Endpoint, ...]:
    listeners = parse_endpoints("listeners", network.listeners, protocols)
    if not listeners:
        raise ConfigError("listeners: must name at least one")
    name = network.inter_broker_listener_name.upper()
    protocol = "SASL_PLAINTEXT" if node.cluster_secret else "PLAINTEXT"
    named = [endpoint for endpoint in listeners if endpoint.listener == name]
    if named and named[0].protocol != protocol and node.cluster_secret:
        raise ConfigError(
            f"listeners={named[0]}: {name} is {named[0].protocol}, but with a cluster.secret it "
            "must be SASL_PLAINTEXT in listener.security.protocol.map"
        )
    if named:
        return listeners
    host = listeners[0].host
    if not host and network.advertised_listeners is None:
        host = LOCAL_HOST  # what is advertised then
    return (*listeners, Endpoint(name, protocol, host, 0))


def _advertised(
    network: NetworkSettings, protocols: Mapping[str, str], listeners: tuple[Endpoint, ...]
) -> dict[str, Endpoint]:
    if network.advertised_listeners is None:
        return {}
    bound = {endpoint.listener: endpoint.protocol for endpoint in listeners}
    endpoints = parse_endpoints(
        "advertised.listeners", network.advertised_listeners, {**protocols, **bound}
    )
    for endpoint in endpoints:
        if endpoint.listener not in bound:
            raise ConfigError(f"advertised.listeners={endpoint}: no such listener is bound")
        if endpoint.host in ("", "0.0.0.0", "::"):  # noqa: S104 - refused, not bound
            raise ConfigError(f"advertised.listeners={endpoint}: nobody can dial that host")
    told = {endpoint.listener: endpoint for endpoint in endpoints}
    first, inner = listeners[0], listeners[-1]
    if first.listener in told and inner.listener not in told and not inner.port:
        # The inter-broker listener opened by itself: where the first one is, under its name.
        told[inner.listener] = replace(inner, host=told[first.listener].host)
    return told


def _log_defaults(values: Mapping[str, str]) -> LogConfig:
    return LogConfig.from_broker(values)
