"""What one node proves to others, and what it asks of those who connect to it.

Source: docs/spec/security.md §2 and §6.
"""

from __future__ import annotations

import asyncio

from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.client.zookeeper.interface import ZooKeeper

from .credential_cache import CredentialCache
from .inter_broker_client import cluster_secret, dialer, node_login
from .listener_terms import ListenerTerms
from .node_tls import NodeTls


class NodeSecurity:
    """The parts that a node's logins need, made from its settings."""

    def __init__(
        self,
        config: NodeConfig,
        node_id: int,
        cluster_id: str,
        zookeeper: ZooKeeper,
        renew: asyncio.Event | None = None,
    ) -> None:
        """``renew`` is set when the operator wants certificates read again."""
        self.tls = NodeTls(config, renew)
        secret = cluster_secret(config, cluster_id)
        self.login = node_login(config, secret)
        """What is proved to other nodes; None without a secret, or where certificates prove."""
        self.dial = dialer(config, node_id, self.login, self.tls)
        self.credentials = CredentialCache(zookeeper)
        self.terms = ListenerTerms(config, secret, self.credentials)

    def follow(self, configs: TopicConfigs) -> None:
        """Read users again when they are announced as changed."""
        configs.on_entities.setdefault("users", []).append(self.credentials.follow)
