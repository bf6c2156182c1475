"""A group that goes on as one of the other kind: classic, or of the new protocol.

Source: docs/spec/consumer-groups.md §5, C52. Offsets stay; what the former kind wrote is deleted
with the first that the other one writes, so that a log never has both for long (C50).
"""

from __future__ import annotations

from barnabas.coordinator.group import Group
from barnabas.coordinator.group_registry import GroupRegistry
from barnabas.coordinator.group_state import GroupState
from barnabas.coordinator.tombstones import group_tombstone
from barnabas.protocol.consumer_group_records import consumer_group_key
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

from .consumer_group import ConsumerGroup
from .group_machine import ConsumerGroupMachine
from .heartbeat_checks import Refusal


class GroupConversion:
    """Turns groups without members; a group is what its members speak."""

    def __init__(self, registry: GroupRegistry, machine: ConsumerGroupMachine) -> None:
        self._registry = registry
        self._machine = machine

    def to_consumer(
        self, group: Group, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroup | Refusal:
        """A member of the new protocol joins a classic group."""
        if group.state is not GroupState.EMPTY:
            return Refusal(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Group {request.group_id} has members of the classic protocol.",
            )
        made = self._machine.new_group(group.group_id)
        made.foreign_keys = [*group_tombstone(group), *((key, None) for key in group.stale_keys)]
        made.lacks_metadata = group.lacks_metadata
        self._registry.replace(group, made)
        return made

    def to_classic(self, group: ConsumerGroup) -> Group:
        """A member of the classic protocol joins a group without members."""
        assert not group.consumers
        made = Group(group.group_id, group.term, since_ms=group.since_ms)
        pending = () if group.last_write is None else group.last_write.keys
        stale = [consumer_group_key(*key) for key in (*pending, *group.keys())]
        made.stale_keys = tuple(dict.fromkeys([*(key for key, _ in group.foreign_keys), *stale]))
        made.lacks_metadata = group.lacks_metadata
        self._registry.replace(group, made)
        return made
