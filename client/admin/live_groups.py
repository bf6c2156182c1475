"""Sets the offsets of a group that has members: takes them out and commits, in one go.

LeaveGroup of all members (static ones too, as KIP-571's removeAll), OffsetCommit without a
generation, OffsetDelete and OffsetFetch go down one connection without waiting for answers; a
coordinator serves them in this order. Members learn of it at their next heartbeat, drop their
partitions, join anew and fetch the new offsets. Who comes back in between makes the commit fail:
then all is tried again. Source: docs/spec/console.md §2.4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.client.cluster import TopicPartition
from barnabas.client.errors import KafkaError, known_code, raise_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import leave_group, offset_commit, offset_delete, offset_fetch

from .admin import Admin
from .descriptions import Committed, GroupDescription, MemberDescription
from .group_admin import committed_in

TRIES: Final = 5
_CHANNEL: Final = "evict"
_NO_GENERATION: Final = -1
_SEVERAL_SINCE: Final = 3
"""From this version on LeaveGroup names several members, and static ones."""
_CAME_BACK: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
"""How a coordinator says that somebody is a member again."""


@dataclass(slots=True)
class Eviction:
    """What came of it."""

    codes: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    """Of each offset that was set or forgotten."""
    found: dict[TopicPartition, Committed] = field(default_factory=dict)
    """What the group had committed right behind it."""
    evicted: int = 0
    """Members that were taken out, each as often as it was."""
    tries: int = 0


async def evict_and_alter(
    admin: Admin,
    group: str,
    offsets: Mapping[TopicPartition, Committed],
    forgotten: Collection[TopicPartition] = (),
    reason: str = "",
) -> Eviction:
    """Take all members out and set these offsets; codes of the last of five tries.

    Where every try failed the offsets stay: all of them are set by one request. Raises KafkaError
    when the coordinator cannot be asked; what was under way then may have been done.
    """
    outcome = Eviction()
    for outcome.tries in range(1, TRIES + 1):
        described = await admin.describe_group(group)
        outcome.evicted += len(described.members)
        await _volley(admin, described, offsets, forgotten, reason, outcome)
        if not _CAME_BACK & set(outcome.codes.values()):
            break
    return outcome


async def _volley(
    admin: Admin,
    group: GroupDescription,
    offsets: Mapping[TopicPartition, Committed],
    forgotten: Collection[TopicPartition],
    reason: str,
    outcome: Eviction,
) -> None:
    name = group.group
    connection = await admin.cluster.coordinator_connection(name, channel=_CHANNEL)
    can_name_several = connection.version_of(leave_group.LeaveGroupRequest) >= _SEVERAL_SINCE
    messages: list[Any] = _leaving(group.members, name, reason, can_name_several=can_name_several)
    leaves = len(messages)
    if offsets:
        messages.append(_commit(name, offsets))
    if forgotten:
        messages.append(_deletion(name, forgotten))
    messages.append(offset_fetch.OffsetFetchRequest(group_id=name, topics=None))
    answers = await asyncio.gather(
        *(admin.cluster.ask_coordinator(name, message, channel=_CHANNEL) for message in messages)
    )
    for answer in answers[:leaves]:
        _check_left(answer)
    *altered, fetched = answers[leaves:]
    for answer in altered:
        raise_for(getattr(answer, "error_code", 0), name)
        outcome.codes.update(
            {
                TopicPartition(topic.name, partition.partition_index): known_code(
                    partition.error_code
                )
                for topic in answer.topics
                for partition in topic.partitions
            }
        )
    raise_for(fetched.error_code, name)
    outcome.found = committed_in(fetched.topics)


def _leaving(
    members: Sequence[MemberDescription], group: str, reason: str, *, can_name_several: bool
) -> list[Any]:
    if not members:
        return []
    if not can_name_several:
        return [
            leave_group.LeaveGroupRequest(group_id=group, member_id=member.member_id, members=())
            for member in members
        ]
    leaving = [
        leave_group.Member(member_id="", group_instance_id=member.instance_id, reason=reason)
        if member.instance_id is not None
        else leave_group.Member(member_id=member.member_id, reason=reason)
        for member in members
    ]
    return [leave_group.LeaveGroupRequest(group_id=group, member_id="", members=leaving)]


def _check_left(answer: leave_group.LeaveGroupResponse) -> None:
    """A member that had left already is none that did not; raises KafkaError for all else."""
    codes = [answer.error_code, *(member.error_code for member in answer.members or ())]
    for code in map(known_code, codes):
        if code and code is not ErrorCode.UNKNOWN_MEMBER_ID:
            raise KafkaError(code, "members cannot be taken out")


def _by_topic(places: Collection[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place)
    return topics


def _commit(
    group: str, offsets: Mapping[TopicPartition, Committed]
) -> offset_commit.OffsetCommitRequest:
    topics = [
        offset_commit.Topic(
            name=topic,
            partitions=[
                offset_commit.Partition(
                    partition_index=place.partition,
                    committed_offset=offsets[place].offset,
                    committed_leader_epoch=offsets[place].leader_epoch,
                    committed_metadata=offsets[place].metadata,
                )
                for place in places
            ],
        )
        for topic, places in _by_topic(list(offsets)).items()
    ]
    return offset_commit.OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=_NO_GENERATION, member_id="", topics=topics
    )


def _deletion(group: str, places: Collection[TopicPartition]) -> offset_delete.OffsetDeleteRequest:
    return offset_delete.OffsetDeleteRequest(
        group_id=group,
        topics=[
            offset_delete.Topic(
                name=topic,
                partitions=[
                    offset_delete.Partition(partition_index=place.partition) for place in of_topic
                ],
            )
            for topic, of_topic in _by_topic(places).items()
        ],
    )
