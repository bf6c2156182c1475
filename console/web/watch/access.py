"""Access control lists and users, as the cluster tells them.

Source: docs/spec/protocol.md §2 (DescribeAcls, DescribeUserScramCredentials).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.scram_users import describe_scram_users


class AclRow(NamedTuple):
    """One entry in words."""

    principal: str
    host: str
    operation: str
    permission: str
    resource: str
    name: str
    pattern: str


class UserRow(NamedTuple):
    """A user with passwords in the cluster; the mechanisms, and how often each was hashed."""

    name: str
    credentials: Sequence[str]
    mechanisms: Sequence[str]


async def acl_rows(admin: Admin) -> list[AclRow]:
    """Every entry; raises KafkaError, SECURITY_DISABLED where the cluster has no authorizer."""
    return [
        AclRow(
            acl.principal, acl.host, acl.operation.name, acl.permission.name,
            pattern.resource_type.name, pattern.name, pattern.pattern_type.name,
        )
        for pattern, acl in await admin.describe_acls()
    ]  # fmt: skip


async def user_rows(admin: Admin) -> list[UserRow]:
    """Every user with SCRAM credentials; raises KafkaError."""
    return [
        UserRow(
            name,
            [f"{mechanism} ({count:,})" for mechanism, count in sorted(found.items())],
            sorted(found),
        )
        for name, found in (await describe_scram_users(admin.cluster)).items()
    ]
