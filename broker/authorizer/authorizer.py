"""The authorizer of a node: what handlers ask before they do anything for a peer.

A decision that allows is kept with the connection it was made for, until the entries change: then
the snapshot is another, and everything is decided anew. Handlers are given None where no authorizer
is configured, and ask nothing. Source: docs/spec/security.md §3 (S45, S53, S55, S96).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from barnabas.protocol.acl import CLUSTER_NAME, Operation, ResourceType

from .acl import AclSnapshot, Subject
from .acl_cache import AclCache
from .audit import Audit

log = logging.getLogger(__name__)

REMEMBERED_MAX: Final = 1000
"""Decisions kept with a connection; a client that names ever more topics cannot fill the memory."""
NAME_MAX: Final = 255
"""Longer names are decided each time: only groups and transactional ids have them."""
NODES_MAY: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.CLUSTER: frozenset(
        {Operation.CLUSTER_ACTION, Operation.DESCRIBE, Operation.ALTER}
    ),
    ResourceType.TOPIC: frozenset({Operation.DESCRIBE, Operation.READ}),
}
"""What a node that has proved the cluster's secret may do, whatever entries say.

Kafka's brokers are super users instead. An entry by which nodes could not replicate is a mistake.
Topics are read for the metrics of groups: how old is the record that a group reads next?
"""

Remembered = tuple[Operation, ResourceType, str]


class AuthorizedPeer(Protocol):
    """What is asked of a connection."""

    decisions: Decisions | None
    """What was decided for it; None before the first decision. The authorizer's alone."""
    is_internal: bool
    host: str
    listener: str

    @property
    def principal(self) -> str:
        """Who it is."""

    @property
    def is_node(self) -> bool:
        """Whether it is a node of this cluster, and has proved it."""


TellDenial = Callable[[AuthorizedPeer, str, str, str], None]
"""Peer, operation, resource and API, in Kafka's words."""


class Decisions:
    """What one connection may do by one snapshot, as far as it was asked."""

    __slots__ = ("allowed", "snapshot", "who")

    def __init__(self, snapshot: AclSnapshot, who: Subject) -> None:
        self.snapshot = snapshot
        self.who = who
        self.allowed: set[Remembered] = set()


class Authorizer:
    """Decides by the entries in the cache, and tells the audit log."""

    def __init__(self, cache: AclCache, audit: Audit, tell: TellDenial | None = None) -> None:
        """``tell`` is called for each denial of which ``audit`` has a line."""
        self.cache = cache
        self._audit = audit
        self._tell = tell
        self.decided: dict[tuple[str, ResourceType], int] = {}
        """How many decisions were made, by result and type; those that were remembered not."""

    @property
    def snapshot(self) -> AclSnapshot:
        """The entries as they are known now."""
        return self.cache.snapshot

    def allows(
        self,
        peer: AuthorizedPeer,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        request: str = "",
        count: int = 1,
        is_told: bool = True,
    ) -> bool:
        """Whether ``peer`` may do it.

        ``request`` and ``count`` are for the audit log: the API, and how often it names the
        resource. ``is_told`` is False where a denial only leaves something out of an answer, or
        where another right would do as well.
        """
        known = peer.decisions
        if (
            known is not None
            and known.snapshot is self.cache.snapshot
            and (operation, resource_type, name) in known.allowed
        ):
            return True
        return self._decide(peer, operation, resource_type, name, request, count, is_told)

    def remembers(
        self,
        peer: AuthorizedPeer,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
    ) -> bool:
        """Whether it is known already that ``peer`` may do it; False says nothing."""
        known = peer.decisions
        return (
            known is not None
            and known.snapshot is self.cache.snapshot
            and (operation, resource_type, name) in known.allowed
        )

    def allowed(
        self,
        peer: AuthorizedPeer,
        operation: Operation,
        resource_type: ResourceType,
        names: Iterable[str],
        *,
        request: str = "",
        is_told: bool = True,
    ) -> Collection[str]:
        """Those of ``names`` with which ``peer`` may do it."""
        return {
            name
            for name in names
            if self.allows(peer, operation, resource_type, name, request=request, is_told=is_told)
        }

    def operations(self, peer: AuthorizedPeer, resource_type: ResourceType, name: str) -> int:
        """A bit for each operation that ``peer`` may do with a resource."""
        try:
            known = self._known(peer)
            bits = known.snapshot.operations(known.who, resource_type, name)
            if peer.is_node:
                bits |= sum(1 << operation for operation in NODES_MAY.get(resource_type, ()))
            return bits
        except Exception:
            log.exception("could not tell what is allowed type=%s", resource_type.word)
            return 0

    def allows_any(
        self,
        peer: AuthorizedPeer,
        operation: Operation,
        resource_type: ResourceType,
        *,
        request: str = "",
    ) -> bool:
        """Whether there can be a resource of the type with which ``peer`` may do it."""
        known = self._known(peer)
        key = (operation, resource_type, ANY_NAME)
        if key in known.allowed:
            return True
        try:
            is_allowed = known.snapshot.allows_any(known.who, operation, resource_type)
        except Exception:
            log.exception("denied, for want of a decision type=%s", resource_type.word)
            is_allowed = False
        if is_allowed:
            self._remember(known, key)
        else:
            self._denied(peer, known.who, operation, resource_type, "NONE", request, 1)
        return is_allowed

    def _known(self, peer: AuthorizedPeer) -> Decisions:
        known = peer.decisions
        if known is None:
            who = Subject(peer.principal, peer.host)
            known = peer.decisions = Decisions(self.cache.snapshot, who)
        elif known.snapshot is not self.cache.snapshot:
            known = peer.decisions = Decisions(self.cache.snapshot, known.who)
        return known

    def _decide(
        self,
        peer: AuthorizedPeer,
        operation: Operation,
        kind: ResourceType,
        name: str,
        request: str,
        count: int,
        is_told: bool,
    ) -> bool:
        known = self._known(peer)
        try:
            is_allowed = known.snapshot.allows(known.who, operation, kind, name)
        except Exception:  # nobody gets in because we cannot decide
            log.exception("denied, for want of a decision type=%s", kind.word)
            is_allowed = False
        if not is_allowed and operation in NODES_MAY.get(kind, ()):
            is_allowed = peer.is_node
        if is_allowed:
            self._remember(known, (operation, kind, name))
            self._audit.allowed(known.who, operation, kind, name, request, count)
        elif is_told:
            self._denied(peer, known.who, operation, kind, name, request, count)
        else:
            self._audit.filtered(known.who, operation, kind, name, request)
        key = ("allowed" if is_allowed else "denied", kind)
        self.decided[key] = self.decided.get(key, 0) + 1
        return is_allowed

    def _denied(
        self,
        peer: AuthorizedPeer,
        who: Subject,
        operation: Operation,
        kind: ResourceType,
        name: str,
        request: str,
        count: int,
    ) -> None:
        self._audit.denied(who, operation, kind, name, request, count)
        if self._tell is not None:
            self._tell(peer, operation.word, f"{kind.word}:{name}", request)

    def _remember(self, known: Decisions, key: Remembered) -> None:
        if self._audit.tells_all or len(key[2]) > NAME_MAX:
            return
        if len(known.allowed) >= REMEMBERED_MAX:
            known.allowed.clear()
        known.allowed.add(key)


ANY_NAME: Final = "\0"
"""Stands for any resource of a type among what is remembered: no resource is called so."""
