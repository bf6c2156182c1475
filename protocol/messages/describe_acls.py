"""DescribeAcls (key 29): lists access rules.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §1.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT8, INT16, INT32, STRING, array, message, wire


@message(key=29, versions=(0, 3), advertised=3, flexible=2)
class DescribeAclsRequest:
    """Which rules to list; None matches anything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, null_since=0)
    pattern_type_filter: int = wire(INT8, since=1, default=3)
    principal_filter: str | None = wire(STRING, null_since=0)
    host_filter: str | None = wire(STRING, null_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message()
class Acl:
    """One rule."""

    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message()
class Resource:
    """The rules on one resource."""

    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, since=1, default=3)
    acls: Sequence[Acl] = wire(array(Acl))


@message(key=29, versions=(0, 3), flexible=2)
class DescribeAclsResponse:
    """The rules found, by resource."""

    throttle_time_ms: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    resources: Sequence[Resource] = wire(array(Resource))
