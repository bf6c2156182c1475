"""Where access control lists stand in ZooKeeper, and how they and the notes about them read.

    /kafka-acl/Topic/foo                         the entries on a literal name, or on "*"
    /kafka-acl-extended/prefixed/Topic/foo       those on names that begin with it
    /kafka-acl-changes/acl_changes_0000000007    TOPIC:foo
    /kafka-acl-extended-changes/acl_changes_...  {"version":1,"resourceType":"TOPIC",...}

Source: docs/spec/security.md §3 (S46, S47); Kafka 3.9 ZkData, AclEntry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.protocol.acl import (
    RESOURCE_TYPES,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    principal_problem,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.names import path_segment

from . import json_fields as js

VERSION: Final = 1
ROOTS: Final = {
    PatternType.LITERAL: "/kafka-acl",
    PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
}
CHANGES: Final = {
    PatternType.LITERAL: "/kafka-acl-changes",
    PatternType.PREFIXED: "/kafka-acl-extended-changes",
}
CHANGE_PREFIX: Final = "acl_changes_"
"""What sequential nodes are created under; ZooKeeper appends ten digits."""


def type_path(pattern_type: PatternType, resource_type: ResourceType) -> str:
    """The parent of all resources of a type that have entries."""
    return f"{ROOTS[pattern_type]}/{resource_type.word}"


def resource_path(pattern: ResourcePattern) -> str:
    """Where the entries on a resource are; raises Refused(42) for a name that is no path."""
    name = path_segment(pattern.name, ErrorCode.INVALID_REQUEST)
    return f"{type_path(pattern.pattern_type, pattern.resource_type)}/{name}"


PERSISTENT_PATHS: Final = (
    *(type_path(kind, resource) for kind in ROOTS for resource in RESOURCE_TYPES),
    *CHANGES.values(),
)
"""Made without data by every broker with an authorizer that starts, where they are missing."""


def acls_to_json(acls: Iterable[Acl]) -> bytes:
    """The entries on one resource, in one order whatever order they come in."""
    return js.dump(
        {
            "version": VERSION,
            "acls": [
                {
                    "principal": acl.principal,
                    "permissionType": acl.permission.word,
                    "operation": acl.operation.word,
                    "host": acl.host,
                }
                for acl in sorted(acls)
            ],
        }
    )


def acls_from_json(data: bytes) -> frozenset[Acl]:
    """Read a payload; a node without data has no entries. Raises ValueError for what is none."""
    if not data:
        return frozenset()
    values = js.load(data)
    version = js.number(values, "version")
    if version != VERSION:
        raise ValueError(f"version {version} of entries is not known")
    return frozenset(
        Acl(
            _principal(js.text(item, "principal")),
            js.text(item, "host"),
            _definite(Operation.of_word(js.text(item, "operation"))),
            _definite_permission(Permission.of_word(js.text(item, "permissionType"))),
        )
        for item in js.objects(values, "acls")
    )


def change_to_json(pattern: ResourcePattern) -> bytes:
    """The note that has every broker read the entries on a resource again."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()
    return js.dump(
        {
            "version": VERSION,
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
        }
    )


def change_from_json(pattern_type: PatternType, data: bytes) -> ResourcePattern:
    """Read a note of the directory of ``pattern_type``; raises ValueError for what is none."""
    if pattern_type is PatternType.LITERAL:
        kind, colon, name = data.decode().partition(":")
        if not colon:
            raise ValueError("a note without a colon")
    else:
        values = js.load(data)
        kind, name = js.text(values, "resourceType"), js.text(values, "name")
        told = PatternType.of_word(js.text(values, "patternType"))
        if told is not pattern_type:
            raise ValueError(f"a note about a pattern of type {told.word}")
    resource_type = ResourceType.of_word(kind)
    if resource_type is ResourceType.ANY:
        raise ValueError("a note about no type of resource")
    return ResourcePattern(resource_type, name, pattern_type)


def _principal(text: str) -> str:
    problem = principal_problem(text)
    if problem is not None:
        raise ValueError(problem)
    return text


def _definite(operation: Operation) -> Operation:
    if operation is Operation.ANY:
        raise ValueError("an entry about no operation")
    return operation


def _definite_permission(permission: Permission) -> Permission:
    if permission is Permission.ANY:
        raise ValueError("an entry that neither allows nor denies")
    return permission
