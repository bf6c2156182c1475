"""Where groups are kept: the offsets partition by the hash of the name, its leader and replicas.

True of any Kafka. Source: docs/spec/coordinator.md §7.2; docs/spec/console.md §2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.client.admin.commit_history import OFFSETS_TOPIC
from barnabas.protocol.hashing import group_partition
from barnabas.protocol.messages import metadata


def placement_of(topics: Mapping[str, metadata.TopicResult], group: str) -> dict[str, Any] | None:
    """The offsets partition of a group; None while there is no offsets topic."""
    topic = topics.get(OFFSETS_TOPIC)
    if topic is None or not topic.partitions:
        return None
    number = group_partition(group, len(topic.partitions))
    found = next((part for part in topic.partitions if part.partition_index == number), None)
    return None if found is None else offsets_partition(found)


def offsets_partition(part: metadata.Partition) -> dict[str, Any]:
    """One partition of the offsets topic: who leads it, and who stands by."""
    leader = part.leader_id if part.leader_id >= 0 else None
    return {
        "partition": part.partition_index,
        "leader": leader,
        "epoch": part.leader_epoch,
        "standbys": [
            {"node": node, "in_sync": node in part.isr_nodes}
            for node in part.replica_nodes
            if node != leader
        ],
        "in_sync": len(part.isr_nodes),
        "replicas": len(part.replica_nodes),
    }
