"""The tree in ZooKeeper: where things stand, and what is written there.

Every payload reads all versions Kafka ever wrote, ignores keys it does not know, and raises
ValueError for what it cannot use. Times are milliseconds, though Kafka writes them as text.
Source: docs/spec/cluster.md §1; docs/spec/coordinator.md §6.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.names import path_segment
from barnabas.protocol.sanitizer import DEFAULT_ENTITY, sanitize

from .broker_registration import ALL_ROLES, BrokerRegistration
from .cluster_state import (
    LAST_EPOCH,
    ClusterId,
    ControllerRecord,
    PartitionState,
    ProducerIdBlock,
    TopicAssignment,
    VotersRecord,
)
from .configs_and_notifications import (
    ConfigChange,
    ConsumerRegistration,
    EntityConfig,
    IsrChange,
    LogDirEvent,
    PreferredElection,
    Reassignment,
    ReassignPartitions,
    TopicConfig,
    TopicPartition,
)
from .json_fields import INT32

__all__ = [
    "ALL_ROLES",
    "LAST_EPOCH",
    "BrokerRegistration",
    "ClusterId",
    "ConfigChange",
    "ConsumerRegistration",
    "ControllerRecord",
    "EntityConfig",
    "IsrChange",
    "LogDirEvent",
    "PartitionState",
    "PreferredElection",
    "ProducerIdBlock",
    "ReassignPartitions",
    "Reassignment",
    "TopicAssignment",
    "TopicConfig",
    "TopicPartition",
    "VotersRecord",
]

CLUSTER_ID: Final = "/cluster/id"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
BROKER_SEQID: Final = "/brokers/seqid"
BROKER_TOPICS: Final = "/brokers/topics"
CONFIG: Final = "/config"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_TOPICS: Final = "/config/topics"
CONFIG_BROKERS: Final = "/config/brokers"
CONFIG_GROUPS: Final = "/config/groups"
ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
CONSUMERS: Final = "/consumers"
FEATURE: Final = "/feature"
OURS: Final = "/barnabas"
"""The parent of what Kafka does not know."""
VOTERS: Final = OURS + "/voters"
GROUP_CHANGES: Final = OURS + "/group_config_changes"
"""Says whose settings to read again, of groups: brokers of Kafka 3.9 take no such announcement."""

CONFIG_CHANGE_PREFIX: Final = CONFIG_CHANGES + "/config_change_"
GROUP_CHANGE_PREFIX: Final = GROUP_CHANGES + "/group_config_change_"
ISR_CHANGE_PREFIX: Final = ISR_CHANGES + "/isr_change_"
LOG_DIR_EVENT_PREFIX: Final = LOG_DIR_EVENTS + "/log_dir_event_"
"""What sequential nodes are created under; ZooKeeper appends ten digits."""

PERSISTENT_PATHS: Final = (
    CONSUMERS,
    BROKER_IDS,
    BROKER_TOPICS,
    BROKER_SEQID,
    CONFIG_CHANGES,
    CONFIG_TOPICS,
    "/config/clients",
    "/config/users",
    CONFIG_BROKERS,
    "/config/ips",
    DELETE_TOPICS,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
)
"""Made without data by every broker that starts, where they are missing."""
OUR_PERSISTENT_PATHS: Final = (CONFIG_GROUPS, GROUP_CHANGES)
"""The same, of those that brokers of Kafka do not know."""


def broker_path(broker_id: int) -> str:
    """Where a broker registers."""
    return f"{BROKER_IDS}/{broker_id}"


def broker_ids(names: Iterable[str]) -> list[int]:
    """The ids among the children of BROKER_IDS; what is no id, written as we write it, is not."""
    found = [int(name) for name in names if name.isascii() and name.isdecimal() and len(name) < 11]
    return [number for number in found if number in INT32]


def topic_path(topic: str) -> str:
    """Where a topic's assignment is."""
    return f"{BROKER_TOPICS}/{path_segment(topic)}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{BROKER_TOPICS}/{path_segment(topic)}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """The parent of a partition's state."""
    return f"{BROKER_TOPICS}/{path_segment(topic)}/partitions/{partition}"


def partition_state_path(topic: str, partition: int) -> str:
    """Where leader and in-sync replicas of a partition are."""
    return f"{BROKER_TOPICS}/{path_segment(topic)}/partitions/{partition}/state"


def deletion_path(topic: str) -> str:
    """The marker that asks for a topic's deletion."""
    return f"{DELETE_TOPICS}/{path_segment(topic)}"


def topic_config_path(topic: str) -> str:
    """Where the settings of a topic are."""
    return f"{CONFIG_TOPICS}/{path_segment(topic)}"


def broker_config_path(broker_id: int | None) -> str:
    """Where the dynamic settings of a broker are; None means those of all brokers."""
    return f"{CONFIG_BROKERS}/{'<default>' if broker_id is None else broker_id}"


def client_config_path(user: str | None, client_id: str | None) -> str:
    """Where quotas of a user, a client or both are; the name ``<default>`` stands for any."""
    path = CONFIG
    for folder, name in (("users", user), ("clients", client_id)):
        if name is not None:
            path += f"/{folder}/{name if name == DEFAULT_ENTITY else sanitize(name)}"
    return path


def group_config_path(group: str) -> str:
    """Where the settings of a group are: of any name that is not empty, however long."""
    return f"{CONFIG_GROUPS}/{group_segment(group)}"


def group_segment(group: str) -> str:
    """A group's name as one level of a path; ``.`` and ``..`` are none in ZooKeeper."""
    assert group, "checked"
    return group.replace(".", "%2E") if group in (".", "..") else sanitize(group)


def group_of_segment(segment: str) -> str | None:
    """The group behind :func:`group_segment`; None for what is no result of it."""
    try:
        group = unquote(segment, errors="strict")
    except ValueError:
        return None
    return group if group and group_segment(group) == segment else None


def consumer_ids_path(group: str) -> str:
    """The parent of a classic group's members."""
    return f"{CONSUMERS}/{_group(group)}/ids"


def consumer_path(group: str, consumer_id: str) -> str:
    """Where a classic consumer registers."""
    return f"{CONSUMERS}/{_group(group)}/ids/{path_segment(consumer_id, ErrorCode.INVALID_REQUEST)}"


def consumer_owners_path(group: str, topic: str) -> str:
    """The parent of the owners of a topic's partitions."""
    return f"{CONSUMERS}/{_group(group)}/owners/{path_segment(topic)}"


def consumer_owner_path(group: str, topic: str, partition: int) -> str:
    """Where a classic consumer's thread claims a partition: plain text, its id."""
    return f"{CONSUMERS}/{_group(group)}/owners/{path_segment(topic)}/{partition}"


def consumer_offset_path(group: str, topic: str, partition: int) -> str:
    """Where a classic consumer keeps the next offset to read: plain decimal text."""
    return f"{CONSUMERS}/{_group(group)}/offsets/{path_segment(topic)}/{partition}"


def _group(group: str) -> str:
    return path_segment(group, ErrorCode.INVALID_GROUP_ID)
