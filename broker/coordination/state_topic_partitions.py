"""How many partitions a state topic has: its znode says so, and nothing else does.

Source: docs/spec/cluster.md §4.1; docs/spec/transactions.md §1.1. Nodes with different settings
would look for a group, or a transactional id, in different partitions, so a node coordinates
nothing before the topic exists, and nothing while ZooKeeper and the controller speak of two topics
of that name: the one that was deleted, and the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from barnabas.broker.metadata.metadata_cache import NO_TOPIC_ID, Snapshot
from barnabas.client.zookeeper.interface import ZooKeeper, ZooKeeperError, read_if_any
from barnabas.protocol.zookeeper import znodes

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""How long after a failure of ZooKeeper the topic is looked for again."""


class StateTopic:
    """Watches a state topic: tells how many partitions it has when it is found, and of its loss."""

    def __init__(
        self,
        name: str,
        zookeeper: ZooKeeper,
        found: Callable[[int], None],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.partition_count: int | None = None
        """None while there is no topic, or two are spoken of."""
        self._name = name
        self._zookeeper = zookeeper
        self._found = found
        self._lost = lost
        self._changed = asyncio.Event()
        self._stored: znodes.TopicAssignment | None = None
        self._told_id = NO_TOPIC_ID
        """Of the topic that the controller told of; none before that, or where it tells no ids."""
        self._is_told = False
        self._is_deleted = False
        """The controller told of its end, and of no other since."""

    async def look(self) -> None:
        """Read the znode now; where it changes, :meth:`run` reads it again."""
        path = znodes.topic_path(self._name)
        stat = await self._zookeeper.exists(path, self._changed.set)
        found = None if stat is None else await read_if_any(self._zookeeper, path)
        if found is None and self._is_told:
            # Its end is the controller's to tell; a ZooKeeper that lost it ends no coordinator.
            log.warning("missing in zookeeper, but known to the controller: %s", path)
            return
        try:
            self._stored = None if found is None else znodes.TopicAssignment.from_json(found[0])
        except ValueError as error:
            log.error("cannot read the assignment of %s: %s", self._name, error)
            return
        self._review()

    def take(self, snapshot: Snapshot) -> None:
        """The controller told something: a deleted topic is lost at once, whatever ZooKeeper has.

        Nothing of the deleted topic must be served from what the znode said of it.
        """
        is_told = self._name in snapshot.topics
        told_id = snapshot.topic_ids.get(self._name, NO_TOPIC_ID)
        if (is_told, told_id) == (self._is_told, self._told_id):
            return
        self._is_deleted = self._is_told and not is_told
        self._is_told, self._told_id = is_told, told_id
        if self._is_deleted:
            self.partition_count = None
            self._lost()
        self._review()
        self._changed.set()

    async def run(self) -> None:
        """Follow the topic until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self.look()
            except ZooKeeperError as error:
                log.warning("could not look for %s: %r", self._name, error)
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    def _review(self) -> None:
        count = self._count()
        if count == self.partition_count:
            return
        if self.partition_count is not None:
            self._lost()
        self.partition_count = count
        if count is not None:
            self._found(count)

    def _count(self) -> int | None:
        stored = self._stored
        if stored is None or not stored.partitions or self._is_deleted:
            return None
        stored_id = stored.topic_id or NO_TOPIC_ID
        if NO_TOPIC_ID not in (stored_id, self._told_id) and stored_id != self._told_id:
            return None
        return len(stored.partitions)
