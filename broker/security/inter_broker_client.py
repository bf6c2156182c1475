"""Connections from this node to the inter-broker listeners of others, with the cluster's proof.

Source: docs/spec/cluster.md §2.14; docs/spec/security.md §6 (S71).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.settings.sasl_settings import NODES_MECHANISMS
from barnabas.client.connection.connection import Connection
from barnabas.client.connection.sasl_login import SaslLogin

from .cluster_secret import ClusterSecret
from .node_tls import NodeTls


def cluster_secret(config: NodeConfig, cluster_id: str) -> ClusterSecret | None:
    """The secret of a node's settings, ready to be proved; None where there is none."""
    node = config.node
    if not node.cluster_secret:
        return None
    return ClusterSecret(cluster_id, node.cluster_secret, node.cluster_secret_previous)


def node_login(config: NodeConfig, secret: ClusterSecret | None) -> SaslLogin | None:
    """What this node proves to others: by the mechanism of its settings, or the best there is.

    None without a secret, and where certificates are the proof.
    """
    if secret is None or config.inter_broker_protocol == "SSL":
        return None
    chosen = config.sasl.inter_broker_mechanism
    return secret.login(NODES_MECHANISMS if chosen is None else (chosen,))


def dialer(
    config: NodeConfig, node_id: int, login: SaslLogin | None, tls: NodeTls
) -> Callable[[str, int], Awaitable[Connection]]:
    """What connects to a host and port as this node; raises KafkaError."""

    async def dial(host: str, port: int) -> Connection:
        return await Connection.open(
            host,
            port,
            client_id=f"node-{node_id}",
            timeout_ms=config.controller.socket_timeout_ms,
            sasl=login,
            tls=tls.dialling(),
        )

    return dial
