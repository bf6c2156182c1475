"""DeleteGroups (key 42): deletes groups with their offsets.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §1.8.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, STRING, array, message, wire


@message(key=42, versions=(0, 2), advertised=2, flexible=2)
class DeleteGroupsRequest:
    """The groups to delete."""

    groups_names: Sequence[str] = wire(array(STRING))


@message()
class GroupResult:
    """The outcome for one group."""

    group_id: str = wire(STRING)
    error_code: int = wire(INT16)


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    """The outcome for each group."""

    throttle_time_ms: int = wire(INT32)
    results: Sequence[GroupResult] = wire(array(GroupResult))
