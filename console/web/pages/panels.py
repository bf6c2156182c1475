"""What several pages say of topics: how many partitions are how well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.protocol.messages import metadata


def partition_counts(topics: Iterable[metadata.TopicResult]) -> dict[str, int]:
    """Partitions in all, without a leader, and with fewer in-sync replicas than replicas."""
    counts = {"partitions": 0, "leaderless": 0, "under_replicated": 0}
    for topic in topics:
        for partition in topic.partitions:
            counts["partitions"] += 1
            counts["leaderless"] += partition.leader_id < 0
            counts["under_replicated"] += is_under_replicated(partition)
    return counts


def is_under_replicated(partition: metadata.Partition) -> bool:
    """Some replica does not keep up."""
    return len(partition.isr_nodes) < len(partition.replica_nodes)


def node_counts(topics: Iterable[metadata.TopicResult]) -> dict[int, dict[str, int]]:
    """By node: partitions that it leads, that it has a replica of, and that it has not in sync."""
    counts: dict[int, dict[str, int]] = {}

    def at(node: int) -> dict[str, int]:
        return counts.setdefault(node, {"leaders": 0, "replicas": 0, "out_of_sync": 0})

    for topic in topics:
        for partition in topic.partitions:
            if partition.leader_id >= 0:
                at(partition.leader_id)["leaders"] += 1
            for node in partition.replica_nodes:
                at(node)["replicas"] += 1
                at(node)["out_of_sync"] += node not in partition.isr_nodes
    return counts


def node_row(node: Any, controller: int | None, counts: dict[str, int]) -> dict[str, Any]:
    """A broker in a list."""
    return {
        "id": node.id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "is_controller": node.id == controller,
        "leaders": counts.get("leaders", 0),
        "replicas": counts.get("replicas", 0),
        "out_of_sync": counts.get("out_of_sync", 0),
    }
