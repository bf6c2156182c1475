"""Connections from this node to the inter-broker listeners of others, with the cluster's proof.

Source: docs/spec/cluster.md §2.14.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from barnabas.broker.settings.node_config import NodeConfig
from barnabas.client.connection.connection import Connection

NODE_USER: Final = "barnabas"
"""The name that nodes prove the cluster's secret under."""


def dialer(config: NodeConfig, node_id: int) -> Callable[[str, int], Awaitable[Connection]]:
    """What connects to a host and port as this node; raises KafkaError."""
    secret = config.node.cluster_secret

    async def dial(host: str, port: int) -> Connection:
        return await Connection.open(
            host,
            port,
            client_id=f"node-{node_id}",
            timeout_ms=config.controller.socket_timeout_ms,
            sasl=(NODE_USER, secret) if secret else None,
        )

    return dial
