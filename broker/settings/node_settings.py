"""What a node's file may say under Kafka's names, section by section: names, defaults, bounds.

Source: docs/spec/cluster.md §5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from barnabas.protocol.settings import setting

ROLES = ("broker", "coordinator")


LOG_FORMATS: Final = ("text", "json")


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
    log_format: str = setting(
        "log.format", "text", "of the node's own log: lines of text, or JSON", choices=LOG_FORMATS
    )
    broker_rack: str | None = setting("broker.rack", None, "told to clients and other nodes")
    node_roles: tuple[str, ...] = setting(
        "node.roles", ROLES, "broker hosts topics, coordinator hosts groups", choices=ROLES
    )
    cluster_secret: str | None = setting(
        "cluster.secret",
        None,
        "what nodes prove to each other on the inter-broker listener",
        is_secret=True,
    )
    cluster_secret_previous: str | None = setting(
        "cluster.secret.previous",
        None,
        "accepted as well, while cluster.secret is replaced node by node",
        is_secret=True,
    )
    node_principals: str | None = setting(
        "cluster.node.principals",
        None,
        "User:name list with ; of those whose certificates are nodes', where these are the proof",
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
    max_connections: int = setting(
        "max.connections", 2_147_483_647, "on all listeners of clients", least=1
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip", 2_147_483_647, "from one address", least=0
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        "max.connections.per.ip.overrides", (), "host:count list, of addresses or host names"
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        2_147_483_647,
        "new ones a second on all listeners of clients; more wait for their turn",
        least=1,
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
