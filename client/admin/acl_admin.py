"""Access control lists: listed, added and removed, on any node.

Source: docs/spec/security.md §3 (S50 to S52).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from barnabas.client.errors import raise_for
from barnabas.protocol.acl import (
    Acl,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.protocol.messages import create_acls, delete_acls, describe_acls

from .log_offsets import LogOffsets

EVERYTHING: Final = AclFilter()


class AclAdmin(LogOffsets):
    """The part of the administrator that knows access control lists."""

    async def describe_acls(self, wanted: AclFilter = EVERYTHING) -> list[AclBinding]:
        """The entries that a filter means, sorted; raises KafkaError."""
        request = describe_acls.DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        answer = await self.cluster.to_any(request)
        raise_for(answer.error_code, answer.error_message or "")
        return sorted(
            _binding(
                (resource.resource_type, resource.resource_name, resource.pattern_type),
                (acl.principal, acl.host, acl.operation, acl.permission_type),
            )
            for resource in answer.resources
            for acl in resource.acls
        )

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Add entries; those that are there already stay. Raises KafkaError for the first refused.

        The others may have been added nevertheless.
        """
        request = create_acls.CreateAclsRequest(
            creations=[
                create_acls.Creation(
                    resource_type=pattern.resource_type,
                    resource_name=pattern.name,
                    resource_pattern_type=pattern.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for pattern, acl in bindings
            ]
        )
        answer = await self.cluster.to_any(request, _codes_of_creation)
        for result in answer.results:
            raise_for(result.error_code, result.error_message or "")

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[AclBinding]:
        """Remove what the filters mean; what was removed, sorted.

        Raises KafkaError for the first filter that was refused.
        """
        request = delete_acls.DeleteAclsRequest(
            filters=[
                delete_acls.Filter(
                    resource_type_filter=wanted.resource_type,
                    resource_name_filter=wanted.name,
                    pattern_type_filter=wanted.pattern_type,
                    principal_filter=wanted.principal,
                    host_filter=wanted.host,
                    operation=wanted.operation,
                    permission_type=wanted.permission,
                )
                for wanted in filters
            ]
        )
        answer = await self.cluster.to_any(request, _codes_of_deletion)
        removed = []
        for result in answer.filter_results:
            raise_for(result.error_code, result.error_message or "")
            for one in result.matching_acls:
                raise_for(one.error_code, one.error_message or "")
                removed.append(
                    _binding(
                        (one.resource_type, one.resource_name, one.pattern_type),
                        (one.principal, one.host, one.operation, one.permission_type),
                    )
                )
        return sorted(removed)


def _binding(pattern: tuple[int, str, int], acl: tuple[str, str, int, int]) -> AclBinding:
    kind, name, pattern_type = pattern
    principal, host, operation, permission = acl
    return AclBinding(
        ResourcePattern(ResourceType(kind), name, PatternType(pattern_type)),
        Acl(principal, host, Operation(operation), Permission(permission)),
    )


def _codes_of_creation(answer: Any) -> Iterable[int]:
    return (result.error_code for result in answer.results)


def _codes_of_deletion(answer: Any) -> Iterable[int]:
    return (result.error_code for result in answer.filter_results)
