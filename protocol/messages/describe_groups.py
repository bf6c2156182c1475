"""DescribeGroups (key 15): shows groups and their members.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §1.8; KIP-1043 (v6: error messages).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, BYTES, INT16, INT32, STRING, array, message, wire


@message(key=15, versions=(0, 6), advertised=6, flexible=5)
class DescribeGroupsRequest:
    """The groups to show."""

    groups: Sequence[str] = wire(array(STRING))
    include_authorized_operations: bool = wire(BOOL, since=3)


@message()
class Member:
    """One member of a group."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=4, null_since=4, default=None)
    client_id: str = wire(STRING)
    client_host: str = wire(STRING)
    member_metadata: bytes = wire(BYTES)
    member_assignment: bytes = wire(BYTES)


@message()
class Group:
    """One group, as its coordinator sees it."""

    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=6, null_since=6, default=None)
    group_id: str = wire(STRING)
    group_state: str = wire(STRING)
    protocol_type: str = wire(STRING)
    protocol_data: str = wire(STRING)
    members: Sequence[Member] = wire(array(Member))
    authorized_operations: int = wire(INT32, since=3, default=-2147483648)


@message(key=15, versions=(0, 6), flexible=5)
class DescribeGroupsResponse:
    """One description a group."""

    throttle_time_ms: int = wire(INT32, since=1)
    groups: Sequence[Group] = wire(array(Group))
