"""What several pages say of partitions and nodes."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.messages import metadata


def is_under_replicated(partition: metadata.Partition) -> bool:
    """Some replica does not keep up."""
    return len(partition.isr_nodes) < len(partition.replica_nodes)


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
