"""The plainest model of access control: a list of bindings, looked through from end to end.

Written from the text of docs/spec/security.md §3, without any of the shipped code's indexes.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address

from hypothesis import strategies as st

from barnabas.protocol.acl import (
    Acl,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

IMPLYING = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}


def concerns(pattern: ResourcePattern, kind: ResourceType, name: str) -> bool:
    """Whether a pattern says something about this resource."""
    if pattern.resource_type is not kind:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def same_host(given: str, host: str) -> bool:
    """Whether an entry's host is the peer's, as addresses where both are."""

    def parsed(text: str) -> object:
        try:
            address = ip_address(text)
        except ValueError:
            return text
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            return address.ipv4_mapped
        return address

    return given == "*" or parsed(given) == parsed(host)


def says(acl: Acl, principal: str, host: str, *operations: Operation) -> bool:
    """Whether an entry is about this peer and one of the operations, or All."""
    return (
        acl.principal in (principal, "User:*")
        and same_host(acl.host, host)
        and acl.operation in (*operations, Operation.ALL)
    )


def allowed(
    bindings: Sequence[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    super_users: Sequence[str] = (),
    allows_unlisted: bool = False,
) -> bool:
    """Kafka's decision."""
    if principal in super_users:
        return True
    found = [one.acl for one in bindings if concerns(one.pattern, kind, name)]
    if not found:
        return allows_unlisted
    denies = [acl for acl in found if acl.permission is Permission.DENY]
    allows = [acl for acl in found if acl.permission is Permission.ALLOW]
    if any(says(acl, principal, host, operation) for acl in denies):
        return False
    return any(
        says(acl, principal, host, operation, *IMPLYING.get(operation, ())) for acl in allows
    )


# Few names, so that they meet: prefixes of each other, the wildcard, and a prefix that is "*".
NAMES = ("a", "ab", "abc", "b", "*", "*x")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "User:ANONYMOUS")
HOSTS = ("*", "10.0.0.1", "10.0.0.2", "::1", "0:0:0:0:0:0:0:1", "::ffff:10.0.0.1")
KINDS = (ResourceType.TOPIC, ResourceType.GROUP)

patterns = st.builds(
    ResourcePattern,
    st.sampled_from(KINDS),
    st.sampled_from(NAMES),
    st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
)
acls = st.builds(
    Acl,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from([one for one in Operation if one is not Operation.ANY]),
    st.sampled_from((Permission.DENY, Permission.ALLOW)),
)
bindings = st.builds(AclBinding, patterns, acls)
