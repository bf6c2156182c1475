"""Access control of one node, put together: cache, store, followed changes, authorizer.

Source: docs/spec/security.md §3 (S39, S48).
"""

from __future__ import annotations

import random
from collections.abc import Callable

from barnabas.broker.settings.authorizer_settings import AuthorizerSettings
from barnabas.client.zookeeper.interface import ZooKeeper

from .acl_cache import AclCache
from .acl_changes import AclChanges
from .acl_store import AclStore
from .audit import Audit
from .authorizer import Authorizer, TellDenial


class AccessControl:
    """What a node with an authorizer has; ``load`` comes before anything is served."""

    def __init__(
        self,
        settings: AuthorizerSettings,
        zookeeper: ZooKeeper,
        *,
        now: Callable[[], float],
        now_ms: Callable[[], int],
        rng: random.Random,
        audit: TellDenial | None = None,
    ) -> None:
        """``audit`` is told of each denial, beside the logger that Kafka has."""
        self.cache = AclCache(
            super_users=settings.super_user_names, allows_unlisted=settings.allows_unlisted
        )
        self.store = AclStore(zookeeper, self.cache, rng)
        self.authorizer = Authorizer(self.cache, Audit(now), audit)
        changes = AclChanges(zookeeper, self.store, now_ms)
        self.load = changes.load
        self.run = changes.run
