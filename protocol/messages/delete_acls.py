"""DeleteAcls (key 31): removes access rules.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §1.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT8, INT16, INT32, STRING, array, message, wire


@message()
class Filter:
    """Which rules to remove; None matches anything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, null_since=0)
    pattern_type_filter: int = wire(INT8, since=1, default=3)
    principal_filter: str | None = wire(STRING, null_since=0)
    host_filter: str | None = wire(STRING, null_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message(key=31, versions=(0, 3), advertised=3, flexible=2)
class DeleteAclsRequest:
    """Filters: each rule that one of them matches goes."""

    filters: Sequence[Filter] = wire(array(Filter))


@message()
class MatchingAcl:
    """One rule that was matched."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8, since=1, default=3)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message()
class FilterResult:
    """What one filter did."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0)
    matching_acls: Sequence[MatchingAcl] = wire(array(MatchingAcl))


@message(key=31, versions=(0, 3), flexible=2)
class DeleteAclsResponse:
    """What each filter matched."""

    throttle_time_ms: int = wire(INT32)
    filter_results: Sequence[FilterResult] = wire(array(FilterResult))
