"""Access control lists and users, as the cluster tells them.

Source: docs/spec/protocol.md §2 (DescribeAcls, DescribeUserScramCredentials).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from barnabas.client.admin.admin import Admin
from barnabas.client.errors import raise_for
from barnabas.protocol.messages import describe_user_scram_credentials as scram_api

_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


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
    request = scram_api.DescribeUserScramCredentialsRequest(users=None)
    answer = await admin.cluster.to_controller(request, lambda answer: [answer.error_code])
    raise_for(answer.error_code, answer.error_message or "")
    return sorted(
        UserRow(
            result.user,
            [
                f"{_MECHANISMS.get(info.mechanism, str(info.mechanism))} ({info.iterations:,})"
                for info in result.credential_infos
            ],
        )
        for result in answer.results
        if not result.error_code
    )
