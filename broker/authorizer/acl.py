"""The decision: whether a principal at a host may do something, by one snapshot of the entries.

    super user                                                  allowed
    no entry of anybody on the name, on "*" or on a prefix      allow.everyone.if.no.acl.found
    an entry denies the operation, or All                       denied
    an entry allows it, or All, or what implies it              allowed
    else                                                        denied

Pure: no clock, no ZooKeeper, no connection. Source: docs/spec/security.md §3 (S41 to S44); Kafka
3.9 AclAuthorizer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from typing import Final

from barnabas.protocol.acl import (
    EVERYBODY,
    WILDCARD,
    Acl,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    canonical_host,
)

IMPLIED_BY: Final[Mapping[Operation, frozenset[Operation]]] = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Whoever may do one of these may do the key as well; an entry that denies implies nothing."""

OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DESCRIBE, Operation.DELETE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
        Operation.ALTER,
        Operation.DESCRIBE,
    ),
}
"""What the fields of authorised operations tell of, by type of resource."""

Entry = tuple[str, Operation]
"""Host, in canonical form, and operation."""


class ResourceAcls:
    """The entries on one pattern, kept so that a decision looks at those of one principal only."""

    __slots__ = ("_allowed", "_denied", "acls", "is_readable", "principals", "version")

    def __init__(
        self, acls: Collection[Acl], version: int = 0, *, is_readable: bool = True
    ) -> None:
        """``version`` is that of the znode; unreadable entries deny everything to everybody."""
        self.acls = frozenset(acls)
        self.version = version
        self.is_readable = is_readable
        self.principals = frozenset(acl.principal for acl in self.acls)
        self._allowed = _by_principal(self.acls, Permission.ALLOW)
        self._denied = _by_principal(self.acls, Permission.DENY)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is said of the resource."""
        return self.is_readable and not self.acls

    def same_as(self, other: ResourceAcls) -> bool:
        """Whether both say the same."""
        return self.is_readable == other.is_readable and self.acls == other.acls

    def denies(self, who: Subject, operations: Collection[Operation]) -> bool:
        """Whether an entry denies one of ``operations``."""
        return not self.is_readable or _has(self._denied, who, operations)

    def allows(self, who: Subject, operations: Collection[Operation]) -> bool:
        """Whether an entry allows one of ``operations``."""
        return self.is_readable and _has(self._allowed, who, operations)


class Subject:
    """Who asks: a principal, and the host it asks from."""

    __slots__ = ("hosts", "principal", "principals")

    def __init__(self, principal: str, host: str) -> None:
        self.principal = principal
        self.principals = (principal, EVERYBODY)
        self.hosts = (canonical_host(host), WILDCARD)


class AclSnapshot:
    """All entries at one time; never changed, so that a decision holds as long as it does."""

    def __init__(
        self,
        resources: Mapping[ResourcePattern, ResourceAcls],
        *,
        super_users: Collection[str] = (),
        allows_unlisted: bool = False,
    ) -> None:
        """``allows_unlisted`` is ``allow.everyone.if.no.acl.found``."""
        self.super_users = frozenset(super_users)
        self.allows_unlisted = allows_unlisted
        self.resources: dict[ResourcePattern, ResourceAcls] = {}
        self._prefixes: dict[ResourceType, Counter[int]] = {}
        """How many prefixes there are of each length."""
        self._of_principal: dict[str, frozenset[ResourcePattern]] = {}
        self._unreadable: frozenset[ResourcePattern] = frozenset()
        of_principal: dict[str, set[ResourcePattern]] = {}
        for pattern, found in resources.items():
            if found.is_empty:
                continue
            self.resources[pattern] = found
            for principal in found.principals:
                of_principal.setdefault(principal, set()).add(pattern)
            if not found.is_readable:
                self._unreadable |= {pattern}
            if pattern.pattern_type is PatternType.PREFIXED:
                counts = self._prefixes.setdefault(pattern.resource_type, Counter())
                counts[len(pattern.name)] += 1
        for principal, patterns in of_principal.items():
            self._of_principal[principal] = frozenset(patterns)
        self._prefix_lengths = _lengths(self._prefixes)

    def with_resource(self, pattern: ResourcePattern, found: ResourceAcls) -> AclSnapshot:
        """The same, but for the entries on one pattern."""
        changed = copy(self)
        changed._put(pattern, found)  # noqa: SLF001 - a copy that nobody has seen yet
        return changed

    def _put(self, pattern: ResourcePattern, found: ResourceAcls) -> None:
        """Replace the entries on one pattern; what others share is copied, not changed."""
        self.resources = dict(self.resources)
        former = self.resources.pop(pattern, NO_ACLS)
        if not found.is_empty:
            self.resources[pattern] = found
        self._of_principal = dict(self._of_principal)
        for principal in former.principals | found.principals:
            patterns = self._of_principal.pop(principal, frozenset()) - {pattern}
            if principal in found.principals:
                patterns |= {pattern}
            if patterns:
                self._of_principal[principal] = patterns
        self._unreadable -= {pattern}
        if not found.is_readable:
            self._unreadable |= {pattern}
        difference = former.is_empty - found.is_empty
        if pattern.pattern_type is PatternType.PREFIXED and difference:
            counts = Counter(self._prefixes.get(pattern.resource_type, ()))
            counts[len(pattern.name)] += difference
            self._prefixes = {**self._prefixes, pattern.resource_type: +counts}
            self._prefix_lengths = _lengths(self._prefixes)

    def with_resources(self, resources: Mapping[ResourcePattern, ResourceAcls]) -> AclSnapshot:
        """The same settings, and all entries anew."""
        return AclSnapshot(
            resources, super_users=self.super_users, allows_unlisted=self.allows_unlisted
        )

    def concerning(self, resource_type: ResourceType, name: str) -> list[ResourceAcls]:
        """The entries on the name, on every name, and on each prefix of it."""
        resources = self.resources
        keys = [
            ResourcePattern(resource_type, name),
            ResourcePattern(resource_type, WILDCARD),
        ]
        # Only as many look-ups as there are prefixes of different length, however many there are.
        lengths = self._prefix_lengths.get(resource_type, [])
        keys += [
            ResourcePattern(resource_type, name[:length], PatternType.PREFIXED)
            for length in lengths[: bisect_right(lengths, len(name))]
        ]
        if name == WILDCARD:
            del keys[1]
        return [found for key in keys if (found := resources.get(key)) is not None]

    def is_super_user(self, principal: str) -> bool:
        """Whether nothing is forbidden to this one."""
        return principal in self.super_users

    def allows(
        self, who: Subject, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether ``who`` may do it with the resource of this name."""
        if who.principal in self.super_users:
            return True
        found = self.concerning(resource_type, name)
        if not found:
            return self.allows_unlisted
        denying = (operation, Operation.ALL)
        if any(one.denies(who, denying) for one in found):
            return False
        allowing = (*denying, *IMPLIED_BY.get(operation, ()))
        return any(one.allows(who, allowing) for one in found)

    def operations(self, who: Subject, resource_type: ResourceType, name: str) -> int:
        """A bit for each operation that ``who`` may do, at its number."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.allows(who, operation, resource_type, name)
        )

    def allows_any(self, who: Subject, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there can be a resource of the type with which ``who`` may do it (S43).

        An entry that denies hides those that allow the same literal, or what lies under a denied
        prefix. Whether such a resource exists is not asked.
        """
        if who.principal in self.super_users:
            return True
        operations = (operation, Operation.ALL)
        denied: set[ResourcePattern] = set()
        allowed: list[ResourcePattern] = []
        candidates = self._unreadable.union(
            *(self._of_principal.get(principal, ()) for principal in who.principals)
        )
        for pattern in candidates:
            if pattern.resource_type is resource_type:
                found = self.resources[pattern]
                if found.denies(who, operations):
                    denied.add(pattern)
                if found.allows(who, operations):
                    allowed.append(pattern)
        if ResourcePattern(resource_type, WILDCARD) in denied:
            return False
        return self.allows_unlisted or any(_survives(pattern, denied) for pattern in allowed)

    def bindings(self, wanted: AclFilter) -> Iterator[AclBinding]:
        """The bindings that a filter means, in no order."""
        definite = wanted.definite_pattern
        if definite is not None:
            found = self.resources.get(definite)
            patterns: Iterable[tuple[ResourcePattern, ResourceAcls]] = (
                [] if found is None else [(definite, found)]
            )
        else:
            patterns = self.resources.items()
        for pattern, found in patterns:
            if wanted.matches_pattern(pattern):
                for acl in found.acls:
                    if wanted.matches_acl(acl):
                        yield AclBinding(pattern, acl)


def _lengths(prefixes: Mapping[ResourceType, Counter[int]]) -> Mapping[ResourceType, list[int]]:
    return {kind: sorted(counts) for kind, counts in prefixes.items()}


def _survives(pattern: ResourcePattern, denied: Collection[ResourcePattern]) -> bool:
    """Whether what an entry allows is not denied by one on the same literal, or on a prefix."""
    if not denied:
        return True
    is_literal = pattern.pattern_type is PatternType.LITERAL
    if is_literal and pattern.name == WILDCARD:
        return True
    if is_literal and pattern in denied:
        return False
    return not any(
        pattern._replace(name=pattern.name[:length], pattern_type=PatternType.PREFIXED) in denied
        for length in range(1, len(pattern.name) + 1)
    )


def _by_principal(acls: Iterable[Acl], permission: Permission) -> Mapping[str, frozenset[Entry]]:
    found: dict[str, set[Entry]] = {}
    for acl in acls:
        if acl.permission is permission:
            entry = canonical_host(acl.host), acl.operation
            found.setdefault(acl.principal, set()).add(entry)
    return {principal: frozenset(entries) for principal, entries in found.items()}


def _has(
    entries: Mapping[str, frozenset[Entry]], who: Subject, operations: Collection[Operation]
) -> bool:
    for principal in who.principals:
        known = entries.get(principal)
        if known and any(
            (host, operation) in known for host in who.hosts for operation in operations
        ):
            return True
    return False


NO_ACLS: Final = ResourceAcls(())
