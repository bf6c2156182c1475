"""Administration of groups: list, describe, delete; read, alter and delete committed offsets.

Source: docs/spec/protocol.md §2; docs/spec/coordinator.md §1.6 to §1.8; docs/spec/users.md §3
(lag).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.cluster import Node, TopicPartition
from barnabas.client.errors import UnsupportedVersion, known_code, raise_for
from barnabas.protocol import consumer_protocol
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)

from .descriptions import Committed, GroupDescription, GroupListing, MemberDescription, Progress
from .log_offsets import LogOffsets

DEAD: Final = "Dead"
"""The state of a group that does not exist."""
_NO_OFFSET: Final = -1
_NO_GENERATION: Final = -1
_CONSUMER: Final = "consumer"
_NO_SUCH_CONSUMER_GROUP: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNSUPPORTED_VERSION,
}
"""Apache Kafka 3.9 offers ConsumerGroupDescribe with ZooKeeper too, and answers the second code."""
_SETTLE_S: Final = 1.0
"""A commit on its way is decided within milliseconds: who asks for stable offsets waits so long."""
_SETTLE_PAUSE_S: Final = 0.05
_AT_ONCE: Final = 500
"""So many partitions go into one request: their records fit into one batch of the log."""


class GroupAdmin(LogOffsets):
    """The part of the administrator that knows groups."""

    async def list_groups(
        self, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[GroupListing]:
        """Every group of every coordinator, by name.

        ``states`` and ``types`` (such as ``Stable`` and ``classic``, in any case) filter; none
        lets all pass.
        """
        nodes = await self.cluster.nodes()
        listed = await asyncio.gather(*(self._groups_of(node.id, states, types) for node in nodes))
        return in_order(group for groups in listed for group in groups)

    async def describe_group(self, group: str) -> GroupDescription:
        """One group and its members, of either protocol; one that does not exist is Dead."""
        request = describe_groups.DescribeGroupsRequest(groups=[group])
        answer = await self.cluster.to_coordinator(
            group, request, lambda answer: (group.error_code for group in answer.groups)
        )
        found = answer.groups[0]
        raise_for(found.error_code, group)
        if found.group_state == DEAD and (other := await self._consumer_group(group)) is not None:
            return other
        return classic_description(found, await self.cluster.coordinator_of(group))

    async def _consumer_group(self, group: str) -> GroupDescription | None:
        """One of the consumer protocol, which DescribeGroups does not know; None for no such."""
        request = consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=[group], include_authorized_operations=False
        )
        try:
            answer = await self.cluster.to_coordinator(
                group, request, lambda answer: (found.error_code for found in answer.groups)
            )
        except UnsupportedVersion:  # a broker without that protocol
            return None
        found = answer.groups[0]
        if found.error_code in _NO_SUCH_CONSUMER_GROUP:
            return None
        raise_for(found.error_code, group)
        return consumer_description(found, await self.cluster.coordinator_of(group))

    async def delete_group(self, group: str) -> ErrorCode:
        """Delete a group with its offsets; the code says why it could not be.

        NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND when there is none.
        """
        request = delete_groups.DeleteGroupsRequest(groups_names=[group])
        answer = await self.cluster.to_coordinator(
            group, request, lambda answer: (result.error_code for result in answer.results)
        )
        return known_code(answer.results[0].error_code)

    async def committed_offsets(
        self, group: str, *, is_stable: bool = False
    ) -> dict[TopicPartition, Committed]:
        """What ``group`` has committed, in every partition of every topic.

        With ``is_stable`` only when none of it is about to change: waits for open transactions and
        commits on their way, and raises KafkaError (UNSTABLE_OFFSET_COMMIT) when that takes too
        long.
        """
        request = offset_fetch.OffsetFetchRequest(
            group_id=group, topics=None, require_stable=is_stable
        )
        answer = await self.cluster.to_coordinator(group, request, _codes_of_offset_fetch)
        raise_for(answer.error_code, group)
        return committed_in(answer.topics)

    async def unstable_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> list[TopicPartition]:
        """Where the offset of ``group`` may change without a further commit; in order.

        An open transaction has staged one there. Of these ``partitions``; None for whatever the
        group has committed. A commit that only waits for replicas is waited for.
        """
        asked: list[list[TopicPartition] | None]
        asked = [None] if partitions is None else list(_chunks(list(partitions)))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SETTLE_S
        while True:
            found = await asyncio.gather(*(self._unstable(group, some) for some in asked))
            unstable = sorted(place for places in found for place in places)
            if not unstable or loop.time() >= deadline:
                return unstable
            await asyncio.sleep(_SETTLE_PAUSE_S)

    async def _unstable(
        self, group: str, partitions: list[TopicPartition] | None
    ) -> list[TopicPartition]:
        topics = None
        if partitions is not None:
            topics = [
                offset_fetch.Topic(
                    name=name, partition_indexes=[place.partition for place in of_topic]
                )
                for name, of_topic in _by_topic(partitions).items()
            ]
        request = offset_fetch.OffsetFetchRequest(
            group_id=group, topics=topics, require_stable=True
        )
        answer = await self.cluster.to_coordinator(
            group, request, lambda answer: [answer.error_code]
        )
        raise_for(answer.error_code, group)
        return [
            place
            for place, code in _partition_codes(answer).items()
            if code is ErrorCode.UNSTABLE_OFFSET_COMMIT
        ]

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Committed]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit ``offsets`` for a group without members, which is made if there is none.

        A code for each partition: one that fails holds up no other. UNKNOWN_MEMBER_ID says that
        the group has members, UNSTABLE_OFFSET_COMMIT that an open transaction holds an offset of
        it, which our coordinator lets no tool overwrite. Raises KafkaError when the coordinator
        cannot be asked; then some may be committed all the same.
        """
        found: dict[TopicPartition, ErrorCode] = {}
        for topic_partitions in _chunks(list(offsets)):
            asked = [
                offset_commit.Topic(
                    name=name,
                    partitions=[
                        offset_commit.Partition(
                            partition_index=topic_partition.partition,
                            committed_offset=offsets[topic_partition].offset,
                            committed_leader_epoch=offsets[topic_partition].leader_epoch,
                            committed_metadata=offsets[topic_partition].metadata,
                        )
                        for topic_partition in of_topic
                    ],
                )
                for name, of_topic in _by_topic(topic_partitions).items()
            ]
            request = offset_commit.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=_NO_GENERATION,
                member_id="",
                topics=asked,
            )
            answer = await self.cluster.to_coordinator(group, request, _codes_of_known_partitions)
            found.update(_partition_codes(answer))
        return found

    async def delete_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Forget what a group committed in these partitions; a code for each.

        GROUP_SUBSCRIBED_TO_TOPIC for what its members consume, UNSTABLE_OFFSET_COMMIT as in
        :meth:`alter_offsets`. Raises KafkaError for the group as
        a whole, such as GROUP_ID_NOT_FOUND.
        """
        found: dict[TopicPartition, ErrorCode] = {}
        for topic_partitions in _chunks(list(partitions)):
            asked = [
                offset_delete.Topic(
                    name=name,
                    partitions=[
                        offset_delete.Partition(partition_index=topic_partition.partition)
                        for topic_partition in of_topic
                    ],
                )
                for name, of_topic in _by_topic(topic_partitions).items()
            ]
            request = offset_delete.OffsetDeleteRequest(group_id=group, topics=asked)
            answer = await self.cluster.to_coordinator(
                group, request, lambda answer: [answer.error_code]
            )
            raise_for(answer.error_code, group)
            found.update(_partition_codes(answer))
        return found

    async def progress(self, group: GroupDescription) -> list[Progress]:
        """How far ``group`` is in every partition it has committed or was given.

        In the order of topics and partitions; members without a partition come last.
        """
        committed = await self.committed_offsets(group.group)
        topic_partitions = partitions_of(group, committed)
        ends, starts = await asyncio.gather(
            self.end_offsets(topic_partitions), self.start_offsets(topic_partitions)
        )
        return progress_of(group, committed, starts, ends)

    async def _groups_of(
        self, node_id: int, states: Sequence[str], types: Sequence[str]
    ) -> list[GroupListing]:
        request = list_groups.ListGroupsRequest(states_filter=states, types_filter=types)
        answer = await self.cluster.to_node(node_id, request, lambda answer: [answer.error_code])
        raise_for(answer.error_code)
        return [listing_of(group, node_id) for group in answer.groups]


def classic_description(found: describe_groups.Group, coordinator: Node) -> GroupDescription:
    """A group as DescribeGroups tells it."""
    return GroupDescription(
        group=found.group_id,
        state=found.group_state,
        protocol_type=found.protocol_type,
        assignor=found.protocol_data,
        coordinator=coordinator,
        members=[_member(member, found.protocol_type) for member in found.members],
    )


def consumer_description(
    found: consumer_group_describe.DescribedGroup, coordinator: Node
) -> GroupDescription:
    """A group as ConsumerGroupDescribe tells it."""
    return GroupDescription(
        group=found.group_id,
        state=found.group_state,
        protocol_type=_CONSUMER,
        assignor=found.assignor_name,
        coordinator=coordinator,
        members=[_consumer_member(member) for member in found.members],
    )


def partitions_of(
    group: GroupDescription, committed: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """What a group has committed or was given, in order."""
    given = {place for member in group.members for place in member.assignment}
    return sorted({*committed, *given})


def progress_of(
    group: GroupDescription,
    committed: Mapping[TopicPartition, Committed],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[Progress]:
    """How far a group is, from what it has committed and where logs start and end.

    As :meth:`GroupAdmin.progress` tells it.
    """
    owners = {place: member for member in group.members for place in member.assignment}
    rows = [
        Progress(
            group=group.group,
            topic=place.topic,
            partition=place.partition,
            current_offset=committed[place].offset if place in committed else None,
            log_start_offset=starts.get(place),
            log_end_offset=ends.get(place),
            member=owners.get(place),
        )
        for place in partitions_of(group, committed)
    ]
    idle = [member for member in group.members if not member.assignment]
    return rows + [Progress(group=group.group, member=member) for member in idle]


def in_order(listings: Iterable[GroupListing]) -> list[GroupListing]:
    """By name; one that two coordinators list, while it moves, by coordinator."""
    return sorted(listings, key=lambda listing: (listing.group, listing.coordinator))


def listing_of(group: list_groups.Group, node_id: int) -> GroupListing:
    """What a coordinator lists, as we say it."""
    return GroupListing(
        group=group.group_id,
        protocol_type=group.protocol_type,
        state=group.group_state,
        coordinator=node_id,
        group_type=group.group_type,
    )


def committed_in(topics: Iterable[offset_fetch.TopicResult]) -> dict[TopicPartition, Committed]:
    """The offsets that an answer to OffsetFetch has for one group."""
    return {
        TopicPartition(topic.name, partition.partition_index): Committed(
            offset=partition.committed_offset,
            metadata=partition.metadata or "",
            leader_epoch=partition.committed_leader_epoch,
        )
        for topic in topics
        for partition in topic.partitions
        if partition.committed_offset != _NO_OFFSET and not partition.error_code
    }


def _chunks(topic_partitions: list[TopicPartition]) -> Iterable[list[TopicPartition]]:
    return (
        topic_partitions[start : start + _AT_ONCE]
        for start in range(0, len(topic_partitions), _AT_ONCE)
    )


def _by_topic(topic_partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = defaultdict(list)
    for topic_partition in topic_partitions:
        topics[topic_partition.topic].append(topic_partition)
    return topics


def _partition_codes(answer: Any) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, partition.partition_index): known_code(partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    }


def _member(member: describe_groups.Member, protocol_type: str) -> MemberDescription:
    assigned: Sequence[consumer_protocol.TopicPartitions] = ()
    if protocol_type == _CONSUMER:
        assigned = consumer_protocol.parse_assignment(member.member_assignment).assigned_partitions
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=sorted(
            TopicPartition(of_topic.topic, partition)
            for of_topic in assigned
            for partition in of_topic.partitions
        ),
    )


def _consumer_member(member: consumer_group_describe.Member) -> MemberDescription:
    return MemberDescription(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=sorted(
            TopicPartition(of_topic.topic_name, partition)
            for of_topic in member.assignment.topic_partitions
            for partition in of_topic.partitions
        ),
    )


def _codes_of_partitions(answer: Any) -> Iterable[int]:
    return (partition.error_code for topic in answer.topics for partition in topic.partitions)


def _codes_of_known_partitions(answer: Any) -> Iterable[int]:
    """A partition that is not known, or in a transaction, keeps no other from its answer.

    A transaction may be open for long: that is for the caller to wait for.
    """
    final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return (code for code in _codes_of_partitions(answer) if code not in final)


def _codes_of_offset_fetch(answer: Any) -> Iterable[int]:
    yield answer.error_code
    yield from _codes_of_partitions(answer)
