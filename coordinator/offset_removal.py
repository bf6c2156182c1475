"""Removes offsets from a group, and the group with the last of them.

Source: docs/spec/coordinator.md §2.4 and §4; GroupCoordinator.cleanupGroupMetadata (3.9): whether
they expired, were deleted by hand or went with their topic, an empty group without offsets is no
more.
"""

from __future__ import annotations

from collections.abc import Collection

from barnabas.protocol.errors import ErrorCode

from .group import Group
from .group_registry import GroupRegistry
from .group_state import GroupState
from .offsets import TopicPartition
from .offsets_journal import Entry
from .rebalance import Rebalancer
from .tombstones import group_tombstone, tombstones


def remove_offsets(
    group: Group,
    partitions: Collection[TopicPartition],
    registry: GroupRegistry,
    rebalancer: Rebalancer,
) -> list[Entry]:
    """Serve these offsets no more, nor the group if that was all it had; what is to be written."""
    entries = tombstones(group, partitions)
    for partition in partitions:
        group.offsets.forget(partition)
    is_over = (
        group.state is GroupState.EMPTY
        and group.offsets.is_empty
        and not group.pending_members  # somebody is about to join
    )
    if is_over:
        entries += group_tombstone(group)
        registry.evict(group)
        rebalancer.mark_dead(group, ErrorCode.NOT_COORDINATOR)
    return entries
