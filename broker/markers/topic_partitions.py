"""Whether a partition exists at all, asked of ZooKeeper.

A node's metadata cannot tell: one that has just started knows no topic yet. A marker that was
dropped for a topic that exists would leave its transaction open for ever there.
Source: docs/spec/transactions.md §3.4; docs/spec/cluster.md §1.4.
"""

from __future__ import annotations

from barnabas.client.zookeeper.interface import ZooKeeper, read_if_any
from barnabas.protocol.zookeeper import znodes


class TopicPartitions:
    """The topics of the cluster as their znodes say."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper

    async def indexes(self, topic: str) -> frozenset[int]:
        """The partitions of a topic; none when it is deleted, or about to be.

        Raises ZooKeeperError, and ValueError for a znode that cannot be read.
        """
        # The mark first: between the two reads the topic may go, and be made anew.
        if await read_if_any(self._zookeeper, znodes.deletion_path(topic)) is not None:
            return frozenset()
        found = await read_if_any(self._zookeeper, znodes.topic_path(topic))
        if found is None:
            return frozenset()
        return frozenset(znodes.TopicAssignment.from_json(found[0]).partitions)
