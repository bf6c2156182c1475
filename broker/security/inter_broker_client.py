"""Connections from this node to the inter-broker listeners of others, with the cluster's proof.

Source: docs/spec/cluster.md §2.14.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from barnabas.broker.settings.node_config import NodeConfig
from barnabas.client.connection.connection import Connection

from .node_tls import NodeTls

NODE_USER: Final = "barnabas"
"""The name that nodes prove the cluster's secret under."""


def node_proof(config: NodeConfig) -> tuple[str, str] | None:
    """Name and password that nodes give each other; None where certificates are the proof."""
    secret = config.node.cluster_secret
    return (NODE_USER, secret) if secret and config.inter_broker_protocol != "SSL" else None


def dialer(
    config: NodeConfig, node_id: int, tls: NodeTls
) -> Callable[[str, int], Awaitable[Connection]]:
    """What connects to a host and port as this node; raises KafkaError."""

    async def dial(host: str, port: int) -> Connection:
        return await Connection.open(
            host,
            port,
            client_id=f"node-{node_id}",
            timeout_ms=config.controller.socket_timeout_ms,
            sasl=node_proof(config),
            tls=tls.dialling(),
        )

    return dial
