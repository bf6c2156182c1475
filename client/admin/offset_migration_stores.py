"""Reads and writes the offsets of classic groups in both stores, ZooKeeper and Kafka.

Of many groups at once, as those who migrate have many. Source: docs/spec/coordinator.md §6.1, §6.7
and §6.8.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.client.errors import KafkaError
from barnabas.client.topology import TopicPartition
from barnabas.client.zookeeper.interface import NoNode, ZooKeeper, read_if_any
from barnabas.protocol.zookeeper import znodes

from .admin import Admin
from .bulk_group_admin import BulkGroupAdmin, Codes, GroupStatus, Offsets
from .descriptions import Committed
from .offset_migration import (
    KAFKA,
    StoredOffsetKey,
    StoredOffsets,
    classic_activity,
    joined,
    number_in,
)

log = logging.getLogger(__name__)

_UNDER_WAY: Final = 128
"""So many requests of one session are on their way to ZooKeeper."""


class Znode(NamedTuple):
    """What ZooKeeper holds of one partition; ``offset`` is None for what is no offset."""

    offset: int | None
    version: int


class BothStores:
    """ZooKeeper and the offset managers, for groups that may be at rest.

    What ZooKeeper refuses is raised; what a coordinator refuses is told as a KafkaError in the
    place of the group's answer.
    """

    def __init__(self, zookeeper: ZooKeeper, admin: Admin) -> None:
        self._zookeeper = zookeeper
        self._admin = admin
        self._many = BulkGroupAdmin(admin)
        self._slots = asyncio.Semaphore(_UNDER_WAY)

    async def classic_groups(self) -> list[str]:
        """Every group that keeps something in ZooKeeper, by name."""
        return sorted(await self._children(znodes.CONSUMERS))

    async def known_partitions(self) -> set[TopicPartition]:
        """Every partition there is: nobody can commit elsewhere."""
        return {
            TopicPartition(topic.name, partition.partition)
            for topic in await self._admin.list_topics()
            for partition in topic.partitions
        }

    async def held(
        self, groups: Collection[str], known: set[TopicPartition]
    ) -> dict[str, list[StoredOffsets]]:
        """What both stores hold; raises KafkaError for the first group that cannot be asked."""
        committed, keys = await asyncio.gather(self.committed(groups), self._offset_keys(groups))
        kept = await self.znodes(keys)
        by_group: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        for key, znode in kept.items():
            if znode.offset is not None:
                by_group[key.group][key.topic_partition] = znode.offset
        found = {}
        for group in groups:
            offsets = committed[group]
            if isinstance(offsets, KafkaError):
                raise offsets
            kafka = {
                topic_partition: committed.offset for topic_partition, committed in offsets.items()
            }
            found[group] = joined(group, by_group[group], kafka, known)
        return found

    async def committed(self, groups: Collection[str]) -> dict[str, Offsets | KafkaError]:
        """What the coordinators hold of these groups.

        A group with offsets in an open transaction is a KafkaError: what is copied now would be
        out of date when the transaction commits.
        """
        return await self._many.committed(groups, is_stable=True)

    async def znodes(self, keys: Iterable[StoredOffsetKey]) -> dict[StoredOffsetKey, Znode]:
        """What ZooKeeper holds there; spots without a znode are left out."""
        keys = list(keys)
        found = await asyncio.gather(*map(self._read, keys))
        return {key: value for key, value in zip(keys, found, strict=True) if value is not None}

    async def classic_activity_of(
        self, groups: Collection[str]
    ) -> dict[str, str | KafkaError | None]:
        """Who may commit while we write, in words; None where nobody is there."""
        classic = asyncio.gather(*map(self._classic_activity, groups))
        states, found = await asyncio.gather(self._many.states(groups), classic)
        return {
            group: activity or _activity_of(states[group])
            for group, activity in zip(groups, found, strict=True)
        }

    async def commit(self, offsets: Mapping[str, Offsets]) -> dict[str, Codes | KafkaError]:
        """Commit at the coordinators; a code for each offset."""
        return await self._many.commit(offsets)

    async def forget(
        self, topic_partitions: Mapping[str, Collection[TopicPartition]]
    ) -> dict[str, Codes | KafkaError]:
        """Delete commits at the coordinators; a code for each offset."""
        return await self._many.forget(topic_partitions)

    async def write_znode(
        self, key: StoredOffsetKey, offset: int | None, held: Znode | None
    ) -> None:
        """Write, make or remove a znode, unless somebody wrote it since it was read as ``held``.

        Raises ZooKeeperError; BadVersion, NoNode and NodeExists say that somebody did.
        """
        path = _path(key)
        async with self._slots:
            if offset is None:
                if held is not None:
                    with contextlib.suppress(NoNode):
                        await self._zookeeper.delete(path, held.version)
            elif held is None:
                await self._zookeeper.create(path, str(offset).encode(), parents=True)
            else:
                await self._zookeeper.set(path, str(offset).encode(), held.version)

    async def write(self, group: str, to: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store all; raises KafkaError for the first that was refused, and ZooKeeperError."""
        if to == KAFKA:
            wanted = {
                topic_partition: Committed(offset=offset)
                for topic_partition, offset in offsets.items()
            }
            codes = (await self.commit({group: wanted}))[group]
            if isinstance(codes, KafkaError):
                raise codes
            for (topic, partition), code in codes.items():
                if code:
                    raise KafkaError(code, f"offset of {topic}-{partition} was not stored")
            return
        held = await self.znodes(
            StoredOffsetKey(group, topic_partition) for topic_partition in offsets
        )
        writes = (
            self.write_znode(
                StoredOffsetKey(group, topic_partition),
                offset,
                held.get(StoredOffsetKey(group, topic_partition)),
            )
            for topic_partition, offset in offsets.items()
        )
        for problem in await asyncio.gather(*writes, return_exceptions=True):
            if problem is not None:
                raise problem

    def release(self, groups: Iterable[str]) -> None:
        """Keep nothing about these in memory."""
        self._many.release(groups)

    async def _offset_keys(self, groups: Iterable[str]) -> list[StoredOffsetKey]:
        """Every place in ZooKeeper where these groups keep an offset."""
        names = list(groups)
        roots = [f"{znodes.CONSUMERS}/{group}/offsets" for group in names]
        topics = await asyncio.gather(*map(self._children, roots))
        pairs = [
            (group, root, topic)
            for group, root, found in zip(names, roots, topics, strict=True)
            for topic in found
        ]
        numbers = await asyncio.gather(*(self._children(f"{r}/{topic}") for _, r, topic in pairs))
        return [
            StoredOffsetKey(group, TopicPartition(topic, int(name)))
            for (group, _, topic), found in zip(pairs, numbers, strict=True)
            for name in found
            if name.isdigit()  # Kafka 0.7 wrote broker-partition, which nobody can map
        ]

    async def _classic_activity(self, group: str) -> str | None:
        ids, topics = await asyncio.gather(
            self._children(znodes.consumer_ids_path(group)),
            self._children(f"{znodes.CONSUMERS}/{group}/owners"),
        )
        owned = {}
        if not ids:
            paths = [znodes.consumer_owners_path(group, topic) for topic in topics]
            owners = await asyncio.gather(*map(self._children, paths))
            owned = dict(zip(topics, owners, strict=True))
        return classic_activity(ids, owned)

    async def _read(self, key: StoredOffsetKey) -> Znode | None:
        async with self._slots:
            found = await read_if_any(self._zookeeper, _path(key))
        if found is None:
            return None
        data, stat = found
        offset = number_in(data)
        if offset is None:
            log.warning("passed over what is no offset path=%s data=%r", _path(key), data[:40])
        return Znode(offset, stat.version)

    async def _children(self, path: str) -> Sequence[str]:
        async with self._slots:
            try:
                return await self._zookeeper.children(path)
            except NoNode:
                return ()


def _path(key: StoredOffsetKey) -> str:
    return znodes.consumer_offset_path(
        key.group, key.topic_partition.topic, key.topic_partition.partition
    )


def _activity_of(state: GroupStatus | KafkaError) -> str | KafkaError | None:
    return state if isinstance(state, KafkaError) else state.activity()
