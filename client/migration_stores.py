"""Both stores of a classic group's offsets as an administrator reads and writes them.

Source: coordinator.md sections 6.1, 6.7 and 6.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from barnabas.protocol import znodes

from .admin import Admin
from .descriptions import Committed
from .ensemble import NoNode, ZooKeeper
from .errors import KafkaError
from .migration import KAFKA, Held, joined
from .offset_stores import ZooKeeperOffsets
from .topology import TopicPartition

log = logging.getLogger(__name__)


class BothStores:
    """ZooKeeper and the offset managers, for groups that may be at rest."""

    def __init__(self, zookeeper: ZooKeeper, admin: Admin) -> None:
        self._zookeeper = zookeeper
        self._admin = admin

    async def classic_groups(self) -> list[str]:
        """Every group that keeps something in ZooKeeper, by name."""
        return sorted(await self._children(znodes.CONSUMERS))

    async def known_partitions(self) -> set[TopicPartition]:
        """Every partition there is: nobody can commit elsewhere."""
        return {
            TopicPartition(topic.name, each.partition)
            for topic in await self._admin.list_topics()
            for each in topic.partitions
        }

    async def held(self, group: str, known: set[TopicPartition]) -> list[Held]:
        """What both stores hold of ``group``; raises KafkaError and ZooKeeperError."""
        committed = await self._admin.committed_offsets(group)
        kafka = {place: each.offset for place, each in committed.items()}
        return joined(group, await self._in_zookeeper(group), kafka, known)

    async def signs_of_life(self, group: str) -> str | None:
        """Who may commit while we write, in words; None when nobody is there."""
        members = await self._children(znodes.consumer_ids_path(group))
        if members:
            return f"{len(members)} classic consumers are in the group"
        for topic in await self._children(f"{znodes.CONSUMERS}/{group}/owners"):
            owned = await self._children(znodes.consumer_owners_path(group, topic))
            if owned:
                return f"{len(owned)} partitions of {topic} have owners"
        described = await self._admin.describe_group(group)
        if described.members:
            return f"{len(described.members)} members are in the group ({described.state})"
        return None

    async def write(self, group: str, to: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store all; raises KafkaError for the first that was refused, and ZooKeeperError."""
        if not offsets:
            return
        if to == KAFKA:
            wanted = {
                place: Committed(offset=offset, metadata="", leader_epoch=-1)
                for place, offset in offsets.items()
            }
            codes = await self._admin.alter_offsets(group, wanted)
            for (topic, partition), code in codes.items():
                if code:
                    raise KafkaError(code, f"offset of {topic}-{partition} was not stored")
        else:
            await ZooKeeperOffsets(self._zookeeper, group).commit(offsets)

    async def _in_zookeeper(self, group: str) -> dict[TopicPartition, int]:
        root = f"{znodes.CONSUMERS}/{group}/offsets"
        topics = await self._children(root)
        names = await asyncio.gather(*(self._children(f"{root}/{topic}") for topic in topics))
        places = [
            TopicPartition(topic, int(name))
            for topic, each in zip(topics, names, strict=True)
            for name in each
            if name.isdigit()  # Kafka 0.7 wrote broker-partition, which nobody can map
        ]
        return await ZooKeeperOffsets(self._zookeeper, group).fetch(places)

    async def _children(self, path: str) -> Sequence[str]:
        try:
            return await self._zookeeper.children(path)
        except NoNode:
            return ()
