"""Where a node of ours answers otherwise than Apache Kafka 3.9.1, by name, and why: all there are.

``python -m tests.authorizer.kafka_differences`` prints the table of docs/security.md.
Source: docs/spec/security.md §3; tests/interop/test_rights_beside_kafka.py compares cell by cell.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from .compared_answers import CLOSED, codes_shown

CONSUMER_GROUPS: Final = frozenset({"consumer group heartbeat", "describe consumer groups"})
CONTROL_PLANE: Final = frozenset(
    {"leader and isr", "stop replica", "update metadata", "controlled shutdown"}
)
FOLLOWER: Final = frozenset({"fetch as a follower from a client", "fetch as a follower"})
GROUP_SETTINGS: Final = frozenset(
    {
        "describe settings of a group",
        "replace settings of a group",
        "alter settings of a group",
    }
)
LISTED: Final = "list resources with settings"
LOGGERS: Final = frozenset({"describe settings of a logger", "alter settings of a logger"})
OTHER_CODES: Final = frozenset({0, 8, 11, 31})


class Cell(NamedTuple):
    """One question of one user, and both answers as they are compared."""

    question: str
    who: str
    ours: Any
    kafka: Any
    is_served: bool
    """Whether our node names the API in ApiVersions."""


class Difference(NamedTuple):
    """One difference; ``covers`` says which cells it explains."""

    name: str
    kafka: str
    ours: str
    why: str
    covers: Callable[[Cell], bool]


def _is_control_plane(cell: Cell) -> bool:
    return (
        cell.question in CONTROL_PLANE
        and cell.who != NODE
        and cell.ours == CLOSED
        and codes_shown(cell.kafka) <= OTHER_CODES
    )


def _is_follower(cell: Cell) -> bool:
    ours, kafka = codes_shown(cell.ours), codes_shown(cell.kafka)
    return cell.question in FOLLOWER and ours == {0, 29} and kafka in ({0, 6}, {0, 3})


def _is_lost_code(cell: Cell) -> bool:
    return (
        cell.question == "offset fetch 1"
        and codes_shown(cell.ours) >= {30}
        and cell.kafka["topics"] == []
    )


def _is_unreadable_entry(cell: Cell) -> bool:
    return (
        cell.question == "create acls"
        and codes_shown(cell.ours) in ({31}, {42})
        and cell.kafka == CLOSED
    )


def _is_logger(cell: Cell) -> bool:
    return (
        cell.question in LOGGERS
        and codes_shown(cell.ours) == {42}
        and codes_shown(cell.kafka) == {0}
    )


def _is_group_settings(cell: Cell) -> bool:
    if cell.question == LISTED:
        return bool(cell.kafka == CLOSED)
    return (
        cell.question in GROUP_SETTINGS
        and codes_shown(cell.ours) in ({0}, {30})
        and codes_shown(cell.kafka) == {42}
    )


def _is_not_served(cell: Cell) -> bool:
    return not cell.is_served and cell.ours == CLOSED and cell.question not in CONTROL_PLANE


def _is_consumer_group(cell: Cell) -> bool:
    return cell.kafka == CLOSED and cell.question in CONSUMER_GROUPS


NODE: Final = "node"
"""Who has proved the cluster's secret; beside a user of Kafka with the same rights."""

DIFFERENCES: Final = (
    Difference(
        "what nodes ask",
        "LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown are served on every"
        " listener, to whoever has ClusterAction",
        "the connection is closed, unless it is one of the nodes' listener",
        "nobody can take part in the cluster who has not proved its secret, whatever entries say",
        _is_control_plane,
    ),
    Difference(
        "fetching as a follower",
        "with ClusterAction on any listener: 6 to who is no replica, 3 for what is not there",
        "29 on every listener but the nodes'",
        "CVE-2018-1288: a replica id is nothing that a client says",
        _is_follower,
    ),
    Difference(
        "OffsetFetch, version 1",
        "a group that may not be described: no topics, and no code",
        "30 for each partition, as in version 0",
        "the code is lost there; a client would take it for a group without offsets",
        _is_lost_code,
    ),
    Difference(
        "entries that cannot be",
        "CreateAcls with an empty name closes the connection",
        "31, or 42 to who may",
        "the other entries of the request are served",
        _is_unreadable_entry,
    ),
    Difference(
        "loggers",
        "DescribeConfigs and IncrementalAlterConfigs tell and set levels of loggers",
        "42, or 31 to who lacks the right",
        "not built",
        _is_logger,
    ),
    Difference(
        "settings of groups",
        "DescribeConfigs and both AlterConfigs of resource type 32: 42; ListConfigResources closes"
        " the connection",
        "served, or 30, and 31, to who lacks the right",
        "Kafka has them without ZooKeeper only",
        _is_group_settings,
    ),
    Difference(
        "groups of the new protocol (KIP-848)",
        "ConsumerGroupHeartbeat and ConsumerGroupDescribe: 35 in version 0, and the connection is"
        " closed in version 1",
        "served, with Read or Describe on the group, and Describe on the topics",
        "Kafka has them without ZooKeeper only",
        _is_consumer_group,
    ),
    Difference(
        "APIs that are not served",
        "AlterReplicaLogDirs, AlterPartition, AllocateProducerIds, and what else"
        " docs/status.md names",
        "the connection is closed, and ApiVersions does not name them",
        "not built, or not asked by our nodes: they write to ZooKeeper what Kafka's ask for",
        _is_not_served,
    ),
)
"""Each covers at least one cell, and no cell that differs is without one."""

BESIDE: Final = (
    (
        "a node's rights",
        "a broker is a super user",
        "a node that has proved the cluster's secret has ClusterAction, Describe and Alter on the"
        " cluster, Describe and Read on topics",
        "a node that is taken over writes to no topic and makes no users",
    ),
    (
        "who is let in on the nodes' listener",
        "every user of its mechanisms, with the rights he has elsewhere",
        "nobody but nodes: 58",
        "what only nodes are served, no user can ask for",
    ),
)
"""What is no cell of the table, and has tests of its own."""


def explained(cell: Cell) -> Difference | None:
    """The difference that covers a cell."""
    return next((one for one in DIFFERENCES if one.covers(cell)), None)


def table() -> str:
    """All of them as a Markdown table."""
    lines = ["| | Kafka 3.9.1 | here | why |", "|---|---|---|---|"]
    rows = [(one.name, one.kafka, one.ours, one.why) for one in DIFFERENCES]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in (*rows, *BESIDE))]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table())
