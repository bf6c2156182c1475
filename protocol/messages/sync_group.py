"""SyncGroup (key 14): gives each member of a group its assignment.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §5.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BYTES, INT16, INT32, STRING, array, message, wire


@message()
class Assignment:
    """What one member is to have."""

    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@message(key=14, versions=(0, 5), advertised=5, flexible=4, elements_max=100_000)
class SyncGroupRequest:
    """From the leader: what everyone is to have; from others: nothing but the question."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, null_since=3, default=None)
    protocol_type: str | None = wire(STRING, since=5, null_since=5, default=None)
    protocol_name: str | None = wire(STRING, since=5, null_since=5, default=None)
    assignments: Sequence[Assignment] = wire(array(Assignment))


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse:
    """What the asking member is to consume."""

    throttle_time_ms: int = wire(INT32, since=1)
    error_code: int = wire(INT16)
    protocol_type: str | None = wire(STRING, since=5, null_since=5, default=None)
    protocol_name: str | None = wire(STRING, since=5, null_since=5, default=None)
    assignment: bytes = wire(BYTES)
