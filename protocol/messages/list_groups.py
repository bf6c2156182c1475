"""ListGroups (key 16): lists the groups a broker coordinates.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §1.8; KIP-518 (v4).
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, STRING, array, message, wire


@message(key=16, versions=(0, 5), advertised=5, flexible=3)
class ListGroupsRequest:
    """States and types to filter by; an empty filter lets all pass."""

    states_filter: Sequence[str] = wire(array(STRING), since=4)
    types_filter: Sequence[str] = wire(array(STRING), since=5)


@message()
class Group:
    """One group."""

    group_id: str = wire(STRING)
    protocol_type: str = wire(STRING)
    group_state: str = wire(STRING, since=4)
    group_type: str = wire(STRING, since=5)


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse:
    """The groups found."""

    throttle_time_ms: int = wire(INT32, since=1)
    error_code: int = wire(INT16)
    groups: Sequence[Group] = wire(array(Group))
