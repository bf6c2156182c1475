"""What one node proves to others, and what it asks of those who connect to it.

Source: docs/spec/security.md §2 and §6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from barnabas.broker.settings.node_config import NodeConfig
from barnabas.broker.settings.topic_configs import TopicConfigs
from barnabas.client.zookeeper.interface import ZooKeeper

from .audit_log import AuditLog
from .credential_cache import CredentialCache
from .delegation_tokens import DelegationTokens
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
        now_ms: Callable[[], int],
        renew: asyncio.Event | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """``now_ms`` is the wall clock, by which tokens hold.

        ``renew`` is set when the operator wants certificates read again.
        """
        self.tls = NodeTls(config, renew, audit)
        secret = cluster_secret(config, cluster_id)
        self.login = node_login(config, secret)
        """What is proved to other nodes; None without a secret, or where certificates prove."""
        self.dial = dialer(config, node_id, self.login, self.tls)
        self.credentials = CredentialCache(zookeeper)
        self.tokens = None
        """Delegation tokens; None where no secret for them is configured."""
        if config.delegation_tokens.secret:
            self.tokens = DelegationTokens(config.delegation_tokens, zookeeper, now_ms)
        cache = self.tokens.cache if self.tokens else None
        self.terms = ListenerTerms(config, secret, self.credentials, cache, now_ms)

    async def load(self) -> None:
        """Read users and tokens, when the node starts and after each new session."""
        await self.credentials.load()
        if self.tokens is not None:
            await self.tokens.load()

    def background(
        self, is_controller: Callable[[], bool]
    ) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        """What runs as long as the node does; the controller removes tokens that have ended."""
        work: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "keys of bearer tokens": self.terms.keys.run
        }
        if self.tokens is not None:
            work["delegation tokens"] = partial(self.tokens.run, is_controller)
        return work

    def follow(self, configs: TopicConfigs) -> None:
        """Read users again when they are announced as changed."""
        configs.on_entities.setdefault("users", []).append(self.credentials.follow)
