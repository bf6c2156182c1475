"""Registering in a classic group, and claiming its partitions: ephemeral znodes of our session.

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


class AlreadyRegistered(Exception):  # noqa: N818 - says what is wrong
    """Another consumer, alive, has our id in the group."""


class ClaimRefused(Exception):  # noqa: N818
    """A partition still has its former owner; nothing of the claim was kept."""

    def __init__(self, place: TopicPartition, holder: str) -> None:
        self.place = place
        super().__init__(f"{place.topic}-{place.partition} belongs to {holder}")


class Ownership:
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
            raise AlreadyRegistered(f"{path} belongs to the session 0x{holder[1]:x}")
        self._registered_in = session

    async def claim(self, owners: Mapping[TopicPartition, str]) -> None:
        """Claim partitions for our threads: all, or none and ClaimRefused or ZooKeeperError."""
        assert not owners.keys() & self.claimed.keys(), "release first"
        life = self._lives
        results = await asyncio.gather(
            *(self._claim(place, thread) for place, thread in owners.items()),
            return_exceptions=True,
        )
        if life != self._lives:
            raise SessionExpired("the session ended while partitions were claimed")
        failures = [each for each in results if isinstance(each, BaseException)]
        perhaps = [
            place
            for place, each in zip(owners, results, strict=True)
            if not isinstance(each, ClaimRefused)
        ]
        self.claimed |= {place: owners[place] for place in perhaps}
        if failures:
            await self.release(perhaps)
            raise failures[0]

    async def release(self, places: Iterable[TopicPartition]) -> None:
        """Give up partitions; one that is another's by now is left alone.

        Raises ZooKeeperError, and then keeps those that may still be ours.
        """
        places = [place for place in places if place in self.claimed]
        results = await asyncio.gather(
            *(self._release(place, self.claimed[place]) for place in places),
            return_exceptions=True,
        )
        for place, result in zip(places, results, strict=True):
            if result is None:
                self.claimed.pop(place, None)
        for result in results:
            if result is not None:
                raise result

    async def still_ours(self, places: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Which of ``places`` are ours beyond doubt: a session of others cannot have them.

        A process that slept past its session learns here that others went on without it. Asked
        of ZooKeeper only when the last answer is older than a third of the session timeout.
        """
        clock = asyncio.get_running_loop().time
        places = [place for place in places if place in self.claimed]
        session = self._zookeeper.session_id
        asked = clock()
        if self._sure_in == session and asked < self._sure_until:
            return set(places)
        holders = await asyncio.gather(*(self._holder(self._path(place)) for place in places))
        ours = {
            place
            for place, holder in zip(places, holders, strict=True)
            if holder is not None and holder == (self.claimed.get(place), session)
        }
        if len(ours) == len(places):
            self._sure_in = session
            self._sure_until = asked + self._zookeeper.session_timeout_ms / 3000
        return ours

    def _path(self, place: TopicPartition) -> str:
        return znodes.consumer_owner_path(self._group, place.topic, place.partition)

    async def _claim(self, place: TopicPartition, thread: str) -> None:
        holder = await self._take(self._path(place), thread.encode())
        if holder is not None:
            raise ClaimRefused(place, holder[0])

    async def _release(self, place: TopicPartition, thread: str) -> None:
        path = self._path(place)
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
