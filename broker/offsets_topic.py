"""How many partitions ``__consumer_offsets`` has: its znode says so, and nothing else does.

Source: cluster.md section 4.1. Nodes with different settings would look for a group in different
partitions, so a node coordinates nothing before the topic exists.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from barnabas.client.ensemble import ZooKeeper, ZooKeeperError, read_if_any
from barnabas.coordinator.ports import OFFSETS_TOPIC
from barnabas.protocol import znodes

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""How long after a failure of ZooKeeper the topic is looked for again."""


class OffsetsTopic:
    """Looks for the topic until it is there, then tells its number of partitions, once."""

    def __init__(self, zookeeper: ZooKeeper, found: Callable[[int], None]) -> None:
        self.partition_count: int | None = None
        """None until the topic was found; it never changes."""
        self._zookeeper = zookeeper
        self._found = found
        self._changed = asyncio.Event()

    async def look(self) -> None:
        """Read the znode now; where there is none, :meth:`run` waits for it."""
        path = znodes.topic_path(OFFSETS_TOPIC)
        if await self._zookeeper.exists(path, self._changed.set) is None:
            return
        found = await read_if_any(self._zookeeper, path)
        try:
            record = znodes.TopicAssignment.from_json(found[0] if found else b"")
        except ValueError as error:
            log.error("cannot read the assignment of %s: %s", OFFSETS_TOPIC, error)
            return
        if record.partitions:
            self.partition_count = len(record.partitions)
            self._found(self.partition_count)

    async def run(self) -> None:
        """Wait for the topic; returns when it is found."""
        while self.partition_count is None:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.look()
            except ZooKeeperError as error:
                log.warning("could not look for %s: %r", OFFSETS_TOPIC, error)
                await asyncio.sleep(RETRY_S)
                self._changed.set()
