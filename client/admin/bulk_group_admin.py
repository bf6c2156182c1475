"""Requests about many groups at once: hundreds in one request instead of one each.

A short cut that is tried once: a group whose answer is missing or an error is asked alone after
that, with all the retries of an administrator. Source: docs/spec/coordinator.md §1.7 and §1.8;
KIP-699 and KIP-709.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from barnabas.client.errors import KafkaError, UnsupportedVersion
from barnabas.client.topology import Node, TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import consumer_group_describe, describe_groups, offset_fetch

from .admin import Admin
from .descriptions import Committed, GroupDescription
from .group_admin import DEAD, classic_description, committed_in, consumer_description

T = TypeVar("T")

Offsets = dict[TopicPartition, Committed]
Codes = dict[TopicPartition, ErrorCode]

_GROUPS_AT_ONCE: Final = 200
"""So many groups are in one request: their answer is no burden to anybody who waits behind it."""
_UNDER_WAY: Final = 64
_GROUPS_SINCE: Final = 8
"""From this version on OffsetFetch takes several groups."""
_AT_REST: Final = ("Empty", DEAD)


class GroupStatus(NamedTuple):
    """What a coordinator says of a group."""

    state: str
    members: int

    def activity(self) -> str | None:
        """Why its offsets may not be touched, in words; None for a group at rest."""
        if self.state in _AT_REST:
            return None
        return f"{self.state} with {self.members} {'member' if self.members == 1 else 'members'}"


class BulkGroupAdmin:
    """Reads and writes of many groups; what fails for one is told as a KafkaError in its stead."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._cluster = admin.cluster

    async def committed(
        self, groups: Collection[str], *, is_stable: bool = False
    ) -> dict[str, Offsets | KafkaError]:
        """What each has committed, everywhere; see ``Admin.committed_offsets``."""

        async def fetch_pack(node: int, pack: list[str]) -> Mapping[str, Offsets]:
            return await self._fetched(node, pack, is_stable=is_stable)

        async def fetch_one(group: str) -> Offsets:
            return await self._admin.committed_offsets(group, is_stable=is_stable)

        found = await self._in_packs(groups, fetch_pack)
        missing = [group for group in groups if group not in found]
        return {**found, **await _each(missing, fetch_one)}

    async def states(self, groups: Collection[str]) -> dict[str, GroupStatus | KafkaError]:
        """State and number of members of each; a group that does not exist is Dead."""
        return {
            group: found if isinstance(found, KafkaError) else _status(found)
            for group, found in (await self.describe(groups)).items()
        }

    async def describe(self, groups: Collection[str]) -> dict[str, GroupDescription | KafkaError]:
        """Each with its members; see ``Admin.describe_group``."""
        found = await self._in_packs(groups, self._described)
        missing = [group for group in groups if group not in found]
        return {**found, **await _each(missing, self._admin.describe_group)}

    async def commit(self, offsets: Mapping[str, Offsets]) -> dict[str, Codes | KafkaError]:
        """Commit for groups without members; see ``Admin.alter_offsets``."""
        await self._nodes(offsets)
        return await _each(offsets, lambda group: self._admin.alter_offsets(group, offsets[group]))

    async def forget(
        self, topic_partitions: Mapping[str, Collection[TopicPartition]]
    ) -> dict[str, Codes | KafkaError]:
        """Delete what groups have committed there; see ``Admin.delete_offsets``."""
        await self._nodes(topic_partitions)
        return await _each(
            topic_partitions,
            lambda group: self._admin.delete_offsets(group, topic_partitions[group]),
        )

    def release(self, groups: Iterable[str]) -> None:
        """Keep nothing about these: for who goes through more groups than memory may hold."""
        for group in groups:
            self._cluster.forget_coordinator(group)

    async def _in_packs(
        self,
        groups: Collection[str],
        ask: Callable[[int, list[str]], Awaitable[Mapping[str, T]]],
    ) -> dict[str, T]:
        packs = [
            (node, pack)
            for node, groups_of_node in (await self._nodes(groups)).items()
            for pack in _packs(groups_of_node)
        ]
        slots = asyncio.Semaphore(_UNDER_WAY)

        async def asked(node: int, pack: list[str]) -> Mapping[str, T]:
            try:
                async with slots:
                    return await ask(node, pack)
            except KafkaError:
                return {}

        found: dict[str, T] = {}
        for groups_of_node in await asyncio.gather(*(asked(*pack) for pack in packs)):
            found.update(groups_of_node)
        return found

    async def _nodes(self, groups: Iterable[str]) -> dict[int, list[str]]:
        """Groups by their coordinators, as far as those are known now."""
        try:
            found = await self._cluster.learn_coordinators(groups)
        except KafkaError:
            return {}
        nodes: dict[int, list[str]] = defaultdict(list)
        for group, node in found.items():
            nodes[node.id].append(group)
        return nodes

    async def _fetched(
        self, node: int, groups: list[str], *, is_stable: bool
    ) -> Mapping[str, Offsets]:
        connection = await self._cluster.connection_to(node)
        version = connection.version_of(offset_fetch.OffsetFetchRequest)
        if version < _GROUPS_SINCE:
            return {}
        request = offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.Group(group_id=group, topics=None) for group in groups],
            require_stable=is_stable,
        )
        answer = await connection.request(request, version)
        return {
            group.group_id: committed_in(group.topics)
            for group in answer.groups
            if not group.error_code and not any(_codes(group.topics))
        }

    async def _described(self, node: int, groups: list[str]) -> Mapping[str, GroupDescription]:
        request = describe_groups.DescribeGroupsRequest(groups=groups)
        answer = await self._cluster.ask(node, request)
        told = [group for group in answer.groups if not group.error_code]
        found = {
            group.group_id: classic_description(group, await self._coordinator(group.group_id))
            for group in told
        }
        dead = [group for group, described in found.items() if not described.exists]
        return {**found, **await self._described_consumer_groups(node, dead)}

    async def _described_consumer_groups(
        self, node: int, groups: list[str]
    ) -> Mapping[str, GroupDescription]:
        """Those of the consumer protocol, which DescribeGroups takes for none."""
        if not groups:
            return {}
        request = consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=groups, include_authorized_operations=False
        )
        try:
            answer = await self._cluster.ask(node, request)
        except UnsupportedVersion:  # a broker without that protocol
            return {}
        return {
            group.group_id: consumer_description(group, await self._coordinator(group.group_id))
            for group in answer.groups
            if not group.error_code
        }

    async def _coordinator(self, group: str) -> Node:
        return await self._cluster.coordinator_of(group)


def _status(described: GroupDescription) -> GroupStatus:
    return GroupStatus(described.state, len(described.members))


def _packs(groups: Iterable[str]) -> Iterable[list[str]]:
    left = iter(groups)
    while pack := list(islice(left, _GROUPS_AT_ONCE)):
        yield pack


def _codes(topics: Iterable[Any]) -> Iterable[int]:
    return (partition.error_code for topic in topics for partition in topic.partitions)


async def _each(
    groups: Iterable[str], ask: Callable[[str], Awaitable[T]]
) -> dict[str, T | KafkaError]:
    """Every group alone, a bounded number of them at a time."""
    slots = asyncio.Semaphore(_UNDER_WAY)

    async def asked(group: str) -> T | KafkaError:
        try:
            async with slots:
                return await ask(group)
        except KafkaError as failure:
            return failure

    names = list(groups)
    return dict(zip(names, await asyncio.gather(*map(asked, names)), strict=True))
