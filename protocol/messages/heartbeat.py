"""Heartbeat (key 12): keeps a member in its group.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §5.
"""

from __future__ import annotations

from barnabas.protocol.codec.wire import INT16, INT32, STRING, message, wire


@message(key=12, versions=(0, 4), advertised=4, flexible=4)
class HeartbeatRequest:
    """A sign of life of one member."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, null_since=3, default=None)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse:
    """Whether the member still belongs, or must join again."""

    throttle_time_ms: int = wire(INT32, since=1)
    error_code: int = wire(INT16)
