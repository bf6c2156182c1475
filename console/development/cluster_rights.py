"""Users and rights of a development cluster, in blocking calls that return once all nodes know.

Source: docs/spec/security.md §2 (S32, S33) and §3 (S49); docs/testing.md.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.scram_users import set_scram_password
from barnabas.console.command_line.failure import Failure
from barnabas.protocol.acl import (
    Acl,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    User,
)
from barnabas.protocol.scram import ITERATIONS_MIN, MECHANISMS

_SPREAD: Final = 1000
"""Numbers of iterations, so that nodes tell by it whether they know this password or a former."""
_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}
Until = Callable[[Callable[[], Awaitable[bool]], str], Awaitable[None]]


async def set_passwords(admin: Admin, user: str, password: str, until: Until) -> None:
    """For both mechanisms; returns when every node lets the user in. Raises KafkaError."""
    iterations = ITERATIONS_MIN + secrets.randbelow(_SPREAD)
    for mechanism in MECHANISMS:
        await set_scram_password(admin.cluster, user, mechanism, password, iterations)
    await until(lambda: _is_known(admin, user, iterations), f"every node to know {user}")


async def _is_known(admin: Admin, user: str, iterations: int) -> bool:
    asked = DescribeUserScramCredentialsRequest(users=[User(name=user)])
    nodes = [node.id for node in await admin.cluster.nodes()]
    answers = await asyncio.gather(*(admin.cluster.to_node(node, asked) for node in nodes))
    known = [[one.iterations for one in answer.results[0].credential_infos] for answer in answers]
    return all(found == [iterations] * len(MECHANISMS) for found in known)


def entries(
    principal: str,
    operations: Sequence[str],
    resources: Mapping[str, str],
    *,
    is_allowed: bool,
    is_prefix: bool,
) -> list[AclBinding]:
    """An entry for each operation and resource; raises Failure for words that make none."""
    named = {resource: name for resource, name in resources.items() if name}
    if not operations or not named:
        raise Failure("say which operations, and on which topic=, group= or transactional_id=")
    kind = PatternType.PREFIXED if is_prefix else PatternType.LITERAL
    permission = Permission.ALLOW if is_allowed else Permission.DENY
    return [
        AclBinding(
            ResourcePattern(_TYPES[resource], name, kind),
            Acl(f"User:{principal}", "*", _operation(word), permission),
        )
        for resource, name in named.items()
        for word in operations
    ]


def _operation(word: str) -> Operation:
    try:
        return Operation.of_word(word)
    except ValueError:
        known = ", ".join(one.word for one in Operation if one is not Operation.ANY)
        raise Failure(f"{word}: is no operation; there are {known}") from None


async def add_entries(admin: Admin, bindings: Sequence[AclBinding], until: Until) -> None:
    """Returns when every node decides by them. Raises KafkaError."""
    await admin.create_acls(bindings)
    await until(lambda: _are_known(admin, bindings), "every node to know the entries")


async def _are_known(admin: Admin, bindings: Sequence[AclBinding]) -> bool:
    asked = [_exactly(binding) for binding in bindings]
    nodes = [node.id for node in await admin.cluster.nodes()]
    answers = [await admin.cluster.to_node(node, one) for node in nodes for one in asked]
    return all(answer.resources for answer in answers)


def _exactly(binding: AclBinding) -> DescribeAclsRequest:
    pattern, acl = binding.pattern, binding.acl
    return DescribeAclsRequest(
        resource_type_filter=pattern.resource_type,
        resource_name_filter=pattern.name,
        pattern_type_filter=pattern.pattern_type,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
