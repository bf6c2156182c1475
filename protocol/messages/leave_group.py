"""LeaveGroup (key 13): takes members out of a group.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §1.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, STRING, array, message, wire


@message()
class Member:
    """One member that leaves."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, null_since=0, default=None)
    reason: str | None = wire(STRING, since=5, null_since=5, default=None)


@message(key=13, versions=(0, 5), advertised=5, flexible=4)
class LeaveGroupRequest:
    """Who leaves; from v3 several at once."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, until=2)
    members: Sequence[Member] = wire(array(Member), since=3)


@message()
class MemberResult:
    """The outcome for one member."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, null_since=0)
    error_code: int = wire(INT16)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    """The outcome, from v3 for each member."""

    throttle_time_ms: int = wire(INT32, since=1)
    error_code: int = wire(INT16)
    members: Sequence[MemberResult] = wire(array(MemberResult), since=3)
