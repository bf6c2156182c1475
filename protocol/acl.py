"""The vocabulary of access control: resources, operations, entries, and filters over them.

Numbers, words and the meaning of filters are Kafka's (ResourceType, AclOperation, PatternType,
AclBindingFilter). Source: docs/spec/security.md §3 (S40, S42, S46, S50).
"""

from __future__ import annotations

import ipaddress
from enum import IntEnum
from typing import Final, NamedTuple, Self

WILDCARD: Final = "*"
"""As a literal name: every resource of the type. As a host: every host."""
EVERYBODY: Final = "User:*"
ANONYMOUS: Final = "User:ANONYMOUS"
CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of type Cluster."""


class _Word(IntEnum):
    @property
    def word(self) -> str:
        """As it stands in znodes and in the audit log: ``DescribeConfigs``."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @classmethod
    def of_word(cls, text: str) -> Self:
        """The value that a word in any case means; raises ValueError for a word of none."""
        wanted = text.replace("_", "").lower()
        for item in cls:
            if item.name.replace("_", "").lower() == wanted:
                return item
        raise ValueError(f"{text[:100]!r} is no {cls.__name__}")


class ResourceType(_Word):
    """What an entry is about."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(_Word):
    """What is to be done with it."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


GROUP_OPERATIONS: Final = 1 << Operation.READ | 1 << Operation.DELETE | 1 << Operation.DESCRIBE
"""Everything that may be done to a group, as bits of an answer, where nobody forbids anything."""


class Permission(_Word):
    """Whether an entry forbids or permits."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class PatternType(_Word):
    """How the name of a pattern is meant; the first two only in filters."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


RESOURCE_TYPES: Final = tuple(item for item in ResourceType if item is not ResourceType.ANY)
"""What an entry may be about."""


class ResourcePattern(NamedTuple):
    """The resources that an entry is about: one, all of a type, or those with a prefix."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


class Acl(NamedTuple):
    """One entry; host and principal as they were given."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    """An entry and what it is about."""

    pattern: ResourcePattern
    acl: Acl


class AclFilter(NamedTuple):
    """Which bindings are meant; None and ANY match everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether entries on this resource may be meant.

        MATCH means every pattern that concerns the resource of that name; the others compare names.
        """
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    def matches_acl(self, acl: Acl) -> bool:
        """Whether this entry is meant, on a resource that is."""
        return (
            self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def matches(self, binding: AclBinding) -> bool:
        """Whether this binding is meant."""
        return self.matches_pattern(binding.pattern) and self.matches_acl(binding.acl)

    @property
    def definite_pattern(self) -> ResourcePattern | None:
        """The one pattern that can match; None where there may be several."""
        is_definite = (
            self.resource_type is not ResourceType.ANY
            and self.name is not None
            and self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        )
        if not is_definite or self.name is None:
            return None
        return ResourcePattern(self.resource_type, self.name, self.pattern_type)


def principal_problem(principal: str) -> str | None:
    """Why this is no principal, for people; None when it is ``type:name``."""
    kind, colon, name = principal.partition(":")
    if kind and colon and name:
        return None
    return f"{principal[:100]!r} is no principal: write User:name"


def canonical_host(host: str) -> str:
    """An address in one form, whatever form it was written in; other text as it is.

    Java prints IPv6 uncompressed and Python compressed; on a socket for both families an IPv4 peer
    looks like ``::ffff:10.0.0.1``. Compared as text, an entry that denies would be bypassed.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)
