"""JoinGroup (key 11): makes a consumer member of a group.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §5.3.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, BYTES, INT16, INT32, STRING, array, message, wire


@message()
class Protocol:
    """One assignment protocol and what the member tells its leader."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@message(key=11, versions=(0, 9), advertised=9, flexible=6, elements_max=10_000)
class JoinGroupRequest:
    """A member, and the assignment protocols it can follow."""

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1)
    """-1 stands for the session timeout (v0)."""
    member_id: str = wire(STRING)
    """Empty at first: the broker hands one out."""
    group_instance_id: str | None = wire(STRING, since=5, null_since=5, default=None)
    protocol_type: str = wire(STRING)
    protocols: Sequence[Protocol] = wire(array(Protocol))
    reason: str | None = wire(STRING, since=8, null_since=8, default=None)


@message()
class Member:
    """One member, for the leader to assign to."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, null_since=5, default=None)
    metadata: bytes = wire(BYTES)


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse:
    """The generation joined; for its leader also all members."""

    throttle_time_ms: int = wire(INT32, since=2)
    error_code: int = wire(INT16)
    generation_id: int = wire(INT32, default=-1)
    protocol_type: str | None = wire(STRING, since=7, null_since=7, default=None)
    protocol_name: str | None = wire(STRING, null_since=7)
    """May be None only from v7."""
    leader: str = wire(STRING)
    skip_assignment: bool = wire(BOOL, since=9)
    member_id: str = wire(STRING)
    members: Sequence[Member] = wire(array(Member))
