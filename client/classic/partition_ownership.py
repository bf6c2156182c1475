"""Registration and partition ownership in a classic group: ephemeral znodes of our session.

Source: docs/spec/coordinator.md §6.2 (registration) and §6.4 (steps 4 and 8); §9 pitfalls 20, 21.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.client.topology import TopicPartition
from barnabas.client.zookeeper.interface import (
    ConnectionLost,
    NodeExists,
    NoNode,
    SessionExpired,
    ZooKeeper,
    ZooKeeperError,
)
from barnabas.protocol.zookeeper import znodes
from barnabas.protocol.zookeeper.znodes import ConsumerRegistration

log = logging.getLogger(__name__)

_TRIES: Final = 5


class ConsumerAlreadyRegistered(Exception):  # noqa: N818 - says what is wrong
    """Another consumer, alive, has our id in the group."""


class ClaimRefused(Exception):  # noqa: N818
    """A partition still has its former owner; nothing of the claim was kept."""

    def __init__(self, topic_partition: TopicPartition, holder: str) -> None:
        self.topic_partition = topic_partition
        super().__init__(f"{topic_partition.topic}-{topic_partition.partition} belongs to {holder}")


class PartitionOwnership:
    """What one consumer holds in its group. ``claimed`` is ours until released or the session ends.

    Calls must not overlap.
    """

    def __init__(self, zookeeper: ZooKeeper, group: str, consumer_id: str) -> None:
        self.claimed: dict[TopicPartition, str] = {}
        """The thread that holds each partition."""
        self._zookeeper = zookeeper
        self._group = group
        self._consumer_id = consumer_id
        self._registered_in: int | None = None
        self._sure_in: int | None = None
        self._sure_until = 0.0
        self._lives = 0

    @property
    def is_registered(self) -> bool:
        """Our registration belongs to the session of now."""
        return self._registered_in == self._zookeeper.session_id

    def forget(self) -> None:
        """The session is over: whatever we held is gone, and may be another's by now."""
        self.claimed = {}
        self._registered_in = None
        self._lives += 1

    def forget_registration(self) -> None:
        """Our registration was deleted behind our back: make another."""
        self._registered_in = None

    async def register(self, registration: ConsumerRegistration) -> None:
        """Enter the group; raises AlreadyRegistered, or ConnectionLost when it cannot be known."""
        path = znodes.consumer_path(self._group, self._consumer_id)
        session = self._zookeeper.session_id
        holder = await self._take(path, registration.to_json())
        if holder is not None:
            raise ConsumerAlreadyRegistered(f"{path} belongs to the session 0x{holder[1]:x}")
        self._registered_in = session

    async def claim(self, owners: Mapping[TopicPartition, str]) -> None:
        """Claim partitions for our threads: all, or none and ClaimRefused or ZooKeeperError."""
        assert not owners.keys() & self.claimed.keys(), "release first"
        life = self._lives
        results = await asyncio.gather(
            *(self._claim(topic_partition, thread) for topic_partition, thread in owners.items()),
            return_exceptions=True,
        )
        if life != self._lives:
            raise SessionExpired("the session ended while partitions were claimed")
        failures = [failure for failure in results if isinstance(failure, BaseException)]
        perhaps = [
            topic_partition
            for topic_partition, result in zip(owners, results, strict=True)
            if not isinstance(result, ClaimRefused)
        ]
        self.claimed |= {topic_partition: owners[topic_partition] for topic_partition in perhaps}
        if failures:
            await self.release(perhaps)
            raise failures[0]

    async def release(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Give up partitions; one that is another's by now is left alone.

        Raises ZooKeeperError, and then keeps those that may still be ours.
        """
        topic_partitions = [
            topic_partition
            for topic_partition in topic_partitions
            if topic_partition in self.claimed
        ]
        results = await asyncio.gather(
            *(
                self._release(topic_partition, self.claimed[topic_partition])
                for topic_partition in topic_partitions
            ),
            return_exceptions=True,
        )
        for topic_partition, result in zip(topic_partitions, results, strict=True):
            if result is None:
                self.claimed.pop(topic_partition, None)
        for result in results:
            if result is not None:
                raise result

    async def still_ours(self, topic_partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Which of these are ours beyond doubt: a session of others cannot have them.

        A process that slept past its session learns here that others went on without it. Asked
        of ZooKeeper only when the last answer is older than a third of the session timeout.
        """
        clock = asyncio.get_running_loop().time
        topic_partitions = [
            topic_partition
            for topic_partition in topic_partitions
            if topic_partition in self.claimed
        ]
        session = self._zookeeper.session_id
        asked = clock()
        if self._sure_in == session and asked < self._sure_until:
            return set(topic_partitions)
        holders = await asyncio.gather(
            *(self._holder(self._path(topic_partition)) for topic_partition in topic_partitions)
        )
        ours = {
            topic_partition
            for topic_partition, holder in zip(topic_partitions, holders, strict=True)
            if holder is not None and holder == (self.claimed.get(topic_partition), session)
        }
        if len(ours) == len(topic_partitions):
            self._sure_in = session
            self._sure_until = asked + self._zookeeper.session_timeout_ms / 3000
        return ours

    def _path(self, topic_partition: TopicPartition) -> str:
        return znodes.consumer_owner_path(
            self._group, topic_partition.topic, topic_partition.partition
        )

    async def _claim(self, topic_partition: TopicPartition, thread: str) -> None:
        holder = await self._take(self._path(topic_partition), thread.encode())
        if holder is not None:
            raise ClaimRefused(topic_partition, holder[0])

    async def _release(self, topic_partition: TopicPartition, thread: str) -> None:
        path = self._path(topic_partition)
        holder = await self._holder(path)
        if holder is not None and holder[0] == thread:
            with contextlib.suppress(NoNode):
                await self._zookeeper.delete(path)

    async def _take(self, path: str, data: bytes) -> tuple[str, int] | None:
        """Create an ephemeral znode; None once it is ours, else its text and session.

        A lost answer is asked for again: the znode may be there. One that a former session of
        ours left behind has our text, and goes.
        """
        ours = data.decode()
        for _ in range(_TRIES):
            with contextlib.suppress(NodeExists, ConnectionLost):
                await self._zookeeper.create(path, data, ephemeral=True, parents=True)
                return None
            holder = await self._holder(path)
            if holder == (ours, self._zookeeper.session_id):
                return None
            if holder is not None and holder[0] != ours:
                return holder
            if holder is not None:
                log.info("deleted what a former session left path=%s", path)
                with contextlib.suppress(NoNode):
                    await self._zookeeper.delete(path)
        raise ZooKeeperError(f"{path} changes while it is claimed")

    async def _holder(self, path: str) -> tuple[str, int] | None:
        try:
            data, stat = await self._zookeeper.get(path)
        except NoNode:
            return None
        return data.decode(errors="replace"), stat.ephemeral_owner
