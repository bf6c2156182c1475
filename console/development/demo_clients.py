"""The two clients of the demonstration: one that sends records, one that is a group of its own.

As small as a story needs; the client library proper has accumulators, rebalances and heartbeats.
Source: docs/spec/coordinator.md §5 (the group protocol); docs/spec/log.md §1 (record batches).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.single_fetch import fetch_batches
from barnabas.client.errors import raise_for
from barnabas.protocol import consumer_protocol
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    join_group,
    leave_group,
    offset_commit,
    produce,
    sync_group,
)
from barnabas.protocol.records.batch import iterate, records
from barnabas.protocol.records.builder import build_batch

_ALL_REPLICAS: Final = -1
_TIMEOUT_MS: Final = 10_000
_SESSION_MS: Final = 6_000
_BEGIN_AGAIN: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
)
_STRATEGY: Final = "range"


async def send(
    cluster: Cluster, topic_partition: TopicPartition, values: Sequence[bytes], timestamp_ms: int
) -> int:
    """Append one batch of records and return the offset of the first; they are acknowledged."""
    batch = build_batch([(None, value) for value in values], timestamp_ms=timestamp_ms)
    part = produce.Partition(index=topic_partition.partition, records=batch)
    request = produce.ProduceRequest(
        acks=_ALL_REPLICAS,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[produce.Topic(name=topic_partition.topic, partition_data=[part])],
    )
    answer = await cluster.to_leader(
        topic_partition, request, lambda answer: [_appended(answer).error_code]
    )
    appended = _appended(answer)
    raise_for(appended.error_code, appended.error_message)
    return int(appended.base_offset)


async def read(cluster: Cluster, topic_partition: TopicPartition, offset: int) -> list[bytes]:
    """The values of the records from ``offset`` to the end, or the first 4 MiB of them."""
    data = await fetch_batches(cluster, topic_partition, offset)
    found = (record for position, _ in iterate(data) for record in records(data, position))
    return [record.value or b"" for record in found if record.offset >= offset]


class OnlyMember:
    """The only member of a group, to which all partitions of one topic belong."""

    def __init__(self, cluster: Cluster, group: str, topic: str, partitions: int) -> None:
        self.topic_partitions = [TopicPartition(topic, index) for index in range(partitions)]
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._member_id = ""
        self._generation = -1

    async def join(self) -> None:
        """Become the member, its leader too, and take every partition.

        Begins again when the group has moved to another coordinator meanwhile: members that did
        not get as far as their assignment are known only to the one they asked.
        """
        while True:
            answer = await self._join()
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            code = answer.error_code
            if not code:
                self._member_id, self._generation = answer.member_id, answer.generation_id
                code = await self._assign_all()
            if code not in _BEGIN_AGAIN:
                raise_for(code, self._group)
                return
            self._member_id = ""

    async def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Store where the group stands; returns when the coordinator has acknowledged it."""
        request = offset_commit.OffsetCommitRequest(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[
                offset_commit.Topic(
                    name=self._topic,
                    partitions=[
                        offset_commit.Partition(
                            partition_index=topic_partition.partition,
                            committed_offset=offset,
                            committed_metadata="",
                        )
                        for topic_partition, offset in positions.items()
                    ],
                )
            ],
        )
        answer = await self._cluster.to_coordinator(self._group, request, _codes_of_commit)
        for code in _codes_of_commit(answer):
            raise_for(code, self._group)

    async def leave(self) -> None:
        """End the membership: the group is empty, its offsets stay."""
        request = leave_group.LeaveGroupRequest(
            group_id=self._group,
            member_id=self._member_id,
            members=[leave_group.Member(member_id=self._member_id)],
        )
        answer = await self._ask(request)
        if answer.error_code != ErrorCode.UNKNOWN_MEMBER_ID:  # else it left with a lost answer
            raise_for(answer.error_code, self._group)
        self._member_id, self._generation = "", -1

    async def _join(self) -> Any:
        subscription = consumer_protocol.Subscription(topics=[self._topic])
        metadata = consumer_protocol.build_subscription(subscription)
        request = join_group.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[join_group.Protocol(name=_STRATEGY, metadata=metadata)],
        )
        return await self._ask(request)

    async def _assign_all(self) -> int:
        mine = consumer_protocol.TopicPartitions(
            topic=self._topic,
            partitions=[topic_partition.partition for topic_partition in self.topic_partitions],
        )
        assignment = consumer_protocol.Assignment(assigned_partitions=[mine])
        request = sync_group.SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name=_STRATEGY,
            assignments=[
                sync_group.Assignment(
                    member_id=self._member_id,
                    assignment=consumer_protocol.build_assignment(assignment),
                )
            ],
        )
        answer = await self._ask(request)
        return int(answer.error_code)

    async def _ask(self, request: Any) -> Any:
        return await self._cluster.to_coordinator(
            self._group, request, lambda answer: [answer.error_code]
        )


def _codes_of_commit(answer: Any) -> Iterable[int]:
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


def _appended(answer: produce.ProduceResponse) -> produce.PartitionResult:
    return answer.responses[0].partition_responses[0]
