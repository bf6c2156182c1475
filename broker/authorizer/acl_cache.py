"""The entries that a node knows, as one snapshot that is replaced and never changed.

Source: docs/spec/security.md §3 (S45, S48: without ZooKeeper the cache decides).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from barnabas.protocol.acl import ResourcePattern

from .acl import NO_ACLS, AclSnapshot, ResourceAcls

log = logging.getLogger(__name__)


class AclCache:
    """Holds the snapshot; whoever keeps a decision compares it by identity."""

    def __init__(self, *, super_users: Collection[str] = (), allows_unlisted: bool = False) -> None:
        self.snapshot = AclSnapshot({}, super_users=super_users, allows_unlisted=allows_unlisted)
        self.on_change: list[Callable[[], None]] = []
        """Called when the entries are others than before."""

    def put(self, pattern: ResourcePattern, found: ResourceAcls) -> bool:
        """Take over what stands in ZooKeeper for one pattern; whether anything is different."""
        known = self.snapshot.resources.get(pattern, NO_ACLS)
        if known.same_as(found):
            known.version = found.version
            return False
        self.snapshot = self.snapshot.with_resource(pattern, found)
        log.info(
            "changed access control lists type=%s pattern=%s name=%.255r entries=%d",
            *(pattern.resource_type.word, pattern.pattern_type.word, pattern.name),
            len(found.acls),
        )
        self._changed()
        return True

    def put_all(self, resources: Mapping[ResourcePattern, ResourceAcls]) -> int:
        """Take over all there is in ZooKeeper; how many patterns were different."""
        known = self.snapshot.resources
        count = sum(
            not known.get(pattern, NO_ACLS).same_as(resources.get(pattern, NO_ACLS))
            for pattern in {*known, *resources}
        )
        if count:
            self.snapshot = self.snapshot.with_resources(resources)
            self._changed()
        return count

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()
