"""What nodes are: where they listen, their rack and roles, what they say of themselves.

Source: docs/spec/console.md §2.2 and §2.3 (brokers).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.client.admin.admin import Admin
from barnabas.client.errors import KafkaError, raise_for
from barnabas.console.coordinators.state_partitions import statuses
from barnabas.console.web.watch.node_status import Status, part, rows, whole
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_cluster

from .balance import NodeFacts


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A node that is up; ``status`` is None where it tells none."""

    id: int
    host: str
    port: int
    rack: str | None
    status: Status | None

    @property
    def facts(self) -> NodeFacts:
        """What decides what it may have."""
        roles = part(self.status, "node", "roles")
        told = isinstance(roles, list) and all(isinstance(role, str) for role in roles)
        return NodeFacts(self.id, self.rack, frozenset(roles) if told and roles else None)


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """All nodes that are up, and which one is the controller."""

    nodes: list[NodeInfo]
    controller: int | None

    @property
    def up(self) -> list[int]:
        """Their ids."""
        return [node.id for node in self.nodes]


async def cluster_nodes(admin: Admin, token: str | None) -> ClusterNodes:
    """Ask; brokers older than Kafka 2.8 tell the same by Metadata. Raises KafkaError."""
    try:
        request = describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=False
        )
        answer = await admin.cluster.to_any(request)
        raise_for(answer.error_code, answer.error_message)
        found = [(node.broker_id, node.host, node.port, node.rack) for node in answer.brokers]
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        answer = await admin.cluster.metadata([])
        found = [(node.node_id, node.host, node.port, node.rack) for node in answer.brokers]
    await admin.cluster.nodes()
    told = await statuses(admin, [node[0] for node in found], token)
    nodes = [NodeInfo(*node, told.get(node[0])) for node in sorted(found)]
    return ClusterNodes(nodes, answer.controller_id if answer.controller_id >= 0 else None)


def standbys_behind(nodes: Iterable[NodeInfo]) -> dict[tuple[int, int], int]:
    """By node and offsets partition, the records that its standby has not applied."""
    return {
        (node.id, partition): behind
        for node in nodes
        for row in rows(node.status, "standbys")
        if (partition := whole(row.get("partition"))) is not None
        and (behind := whole(row.get("behind"))) is not None
    }
