"""A classic group as read from ZooKeeper: members, their threads and topics, brokers.

Source: docs/spec/coordinator.md §6.1, §6.3 and §6.4 (step 5).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from barnabas.client.zookeeper.interface import ZooKeeperError
from barnabas.client.zookeeper.znode_watches import WatchedReads
from barnabas.protocol.zookeeper import znodes
from barnabas.protocol.zookeeper.znodes import (
    BrokerRegistration,
    ConsumerRegistration,
    TopicAssignment,
)

from .classic_security import ClassicSecurity
from .topic_filter import TopicFilter

log = logging.getLogger(__name__)

_IN_CLEAR: Final = ClassicSecurity()
STATIC = "static"
"""The pattern of a registration that names its topics."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """What one read of the group found; two members with equal views compute equal owners."""

    members: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many threads each consumer has for each topic, filters applied."""
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The partitions of every topic that anyone of the group consumes, in numeric order."""
    brokers: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Where the brokers that are up listen."""

    @property
    def threads(self) -> dict[str, list[str]]:
        """The ids of all threads of each topic."""
        found: dict[str, list[str]] = {}
        for consumer, counts in self.members.items():
            for topic, count in counts.items():
                found.setdefault(topic, []).extend(thread_ids(consumer, count))
        return found


def thread_ids(consumer_id: str, count: int) -> list[str]:
    """The ids of a consumer's threads, which is what owners of partitions are called."""
    return [f"{consumer_id}-{number}" for number in range(count)]


async def view_group(
    reads: WatchedReads,
    group: str,
    *,
    exclude_internal: bool = True,
    security: ClassicSecurity = _IN_CLEAR,
    listener: str | None = None,
) -> GroupView:
    """Read the group and watch all of it.

    Raises ValueError for a filter of a member that we cannot read, since any guess at its topics
    would give partitions two owners, and ZooKeeperError.
    """
    registrations = await _registrations(reads, group)
    topics: list[str] = []
    if any(registration.pattern != STATIC for registration in registrations.values()):
        topics = await reads.children(znodes.BROKER_TOPICS)

    @cache  # the members of a group mostly have the same filter
    def select(wanted: TopicFilter) -> list[str]:
        return wanted.select(topics, exclude_internal=exclude_internal)

    members = {
        consumer: topic_counts(registration, select)
        for consumer, registration in registrations.items()
    }
    consumed = {topic for counts in members.values() for topic in counts}
    return GroupView(
        members,
        await partitions_of(reads, sorted(consumed)),
        await live_brokers(reads, security, listener),
    )


def topic_counts(
    registration: ConsumerRegistration, select: Callable[[TopicFilter], Iterable[str]]
) -> dict[str, int]:
    """The threads of one consumer for each topic; ``select`` finds the topics of a filter.

    Raises ValueError for a filter that is none.
    """
    if registration.pattern == STATIC:
        return dict(registration.subscription)
    [(regex, count)] = registration.subscription.items()
    return dict.fromkeys(select(TopicFilter(regex, registration.pattern)), count)


async def partitions_of(reads: WatchedReads, topics: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The partitions of those topics that exist, in numeric order."""

    async def of(topic: str) -> tuple[str, tuple[int, ...]]:
        found = await reads.data(znodes.topic_path(topic))
        if found is None:
            return topic, ()
        return topic, tuple(sorted(TopicAssignment.from_json(found[0]).partitions))

    return dict(await asyncio.gather(*map(of, topics)))


async def live_brokers(
    reads: WatchedReads, security: ClassicSecurity = _IN_CLEAR, listener: str | None = None
) -> dict[int, tuple[str, int]]:
    """Where each broker that is up listens for clients that speak so; others are left out.

    Raises ZooKeeperError when there are brokers, and none listens so.
    """
    unfit: list[int] = []

    async def of(name: str) -> tuple[int, tuple[str, int] | None]:
        found = await reads.data(f"{znodes.BROKER_IDS}/{name}")
        if found is None:
            return int(name), None
        address = security.address(BrokerRegistration.from_json(found[0]), listener)
        if address is None:
            unfit.append(int(name))
        return int(name), address

    names = await reads.children(znodes.BROKER_IDS)
    found = await asyncio.gather(*map(of, sorted(names)))
    brokers = {broker: address for broker, address in found if address is not None}
    if unfit:
        wanted = f"listener of {security.protocol}" if listener is None else f"listener {listener}"
        if not brokers:
            raise ZooKeeperError(f"no broker has a {wanted}")
        log.warning("brokers without a %s are not asked: %s", wanted, sorted(unfit))
    return brokers


async def _registrations(reads: WatchedReads, group: str) -> dict[str, ConsumerRegistration]:
    async def of(consumer: str) -> tuple[str, ConsumerRegistration | None]:
        found = await reads.data(znodes.consumer_path(group, consumer))
        try:
            return consumer, None if found is None else ConsumerRegistration.from_json(found[0])
        except ValueError as error:
            log.warning("passed over a member group=%s consumer=%s: %s", group, consumer, error)
            return consumer, None

    found = await asyncio.gather(*map(of, await reads.children(znodes.consumer_ids_path(group))))
    return {consumer: registration for consumer, registration in found if registration is not None}
