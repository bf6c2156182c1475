"""Which offsets have outlived their group, and the round that removes them.

Source: docs/spec/coordinator.md §4 (KIP-211). A subscribed group never loses an offset, however
long it is idle; a group that is rebalancing loses none at all (KAFKA-4682, KAFKA-13636).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from .config import CoordinatorConfig
from .group import Group
from .group_registry import GroupRegistry
from .group_state import GroupState
from .loader import SLICE_S
from .offset_removal import remove_offsets
from .offsets import Commit, TopicPartition
from .offsets_journal import Journal
from .rebalance import Rebalancer
from .tombstones import TombstoneWrite

log = logging.getLogger(__name__)


def expired(group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """The partitions whose offsets may go now."""
    return [
        partition
        for partition, commit in _candidates(group)
        if not group.offsets.is_unstable(partition)
        and _has_expired(group, commit, now_ms, retention_ms)
    ]


def _candidates(group: Group) -> Iterable[tuple[TopicPartition, Commit]]:
    offsets = group.offsets.committed.items()
    if group.state is GroupState.EMPTY:
        return offsets
    subscribed = group.known_subscription
    if group.state is GroupState.STABLE and subscribed is not None:
        return [item for item in offsets if item[0][0] not in subscribed]
    return ()


def _has_expired(group: Group, commit: Commit, now_ms: int, retention_ms: int) -> bool:
    if commit.expires_ms >= 0:
        return now_ms >= commit.expires_ms
    since = commit.committed_ms
    had_members = group.state is GroupState.EMPTY and group.protocol_type is not None
    if had_members and group.since_ms is not None:
        # What was committed to an empty consumer group stays a retention (C60 of
        # docs/spec/consumer-groups.md). A classic group goes by KIP-211: as it became Empty.
        since = max(since, group.since_ms) if group.is_consumer else group.since_ms
    return now_ms - since >= retention_ms


class OffsetExpiration:
    """Removes what has expired, and groups of which nothing is left."""

    def __init__(
        self,
        registry: GroupRegistry,
        rebalancer: Rebalancer,
        journal: Journal,
        config: CoordinatorConfig,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._rebalancer = rebalancer
        self._journal = journal
        self._config = config
        self._loop = loop
        self._now_ms = now_ms
        self.expired = 0
        """How many offsets have been removed by the rounds so far."""

    async def run(self) -> None:
        """Look at every group at once and then each ``offsets.retention.check.interval.ms``."""
        while True:
            await self._round()
            await asyncio.sleep(self._config.retention_check_interval_ms / 1000)

    async def _round(self) -> None:
        removed = 0
        slice_ends = self._loop.time() + SLICE_S
        for group in self._registry:
            removed += self.sweep(group)
            if self._loop.time() >= slice_ends:
                await asyncio.sleep(0)
                slice_ends = self._loop.time() + SLICE_S
        self.expired += removed
        if removed:
            log.info("expired offsets=%d", removed)

    def sweep(self, group: Group) -> int:
        """Remove what has expired in one group; gives how many offsets went.

        The tombstones are not waited for: when they are lost, the offsets expire again.
        """
        if group.state is GroupState.DEAD or group.lacks_metadata:
            return 0  # how long it has been without members is not known of the latter
        partitions = expired(group, self._now_ms(), self._config.retention_ms)
        entries = remove_offsets(group, partitions, self._registry, self._rebalancer)
        if entries:
            tombstone_write = TombstoneWrite(lambda _code: None)
            tombstone_write.write(self._journal, group, entries)
            tombstone_write.close()
        return len(partitions)
