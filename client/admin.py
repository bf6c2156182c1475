"""Administration of a cluster: topics, groups, committed offsets and lag.

Source: protocol.md section 2; coordinator.md sections 1.7 and 1.8; users.md section 3 (lag).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from barnabas.protocol import consumer_protocol
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    create_topics,
    delete_topics,
    describe_groups,
    list_groups,
    list_offsets,
    metadata,
    offset_fetch,
)

from .cluster import Cluster, TopicPartition
from .config import ClientConfig
from .descriptions import (
    Committed,
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewTopic,
    PartitionDescription,
    Progress,
    TopicDescription,
)
from .errors import KafkaError, raise_for

LATEST: Final = -1
EARLIEST: Final = -2
_NO_OFFSET: Final = -1
_CONSUMER: Final = "consumer"
_ROUNDS: Final = 2


class Admin:
    """Asks and changes what a cluster knows; every call retries as its error codes allow.

    Use it in ``async with``, or close it.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @classmethod
    def of(cls, bootstrap: str | Sequence[str], config: ClientConfig | None = None) -> Admin:
        """An administrator of the cluster at ``bootstrap``; connects at the first call."""
        return cls(Cluster(bootstrap, config))

    async def create_topics(self, topics: Iterable[NewTopic]) -> None:
        """Create topics; returns when the controller has made them.

        Raises KafkaError for the first that it refused; the others may exist nevertheless.
        """
        wanted = [
            create_topics.Topic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[
                    create_topics.Config(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ]
        request = create_topics.CreateTopicsRequest(
            topics=wanted, timeout_ms=self.cluster.config.request_timeout_ms
        )
        answer = await self.cluster.to_controller(request, _codes_of_topics)
        for topic in answer.topics:
            raise_for(topic.error_code, topic.error_message or topic.name)

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics with all their records; raises KafkaError for the first refused one."""
        names = list(names)
        request = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.Topic(name=name) for name in names],
            topic_names=names,
            timeout_ms=self.cluster.config.request_timeout_ms,
        )
        answer = await self.cluster.to_controller(request, _codes_of_deletion)
        for topic in answer.responses:
            raise_for(topic.error_code, topic.error_message or topic.name)

    async def list_topics(self) -> list[TopicDescription]:
        """Every topic, internal ones too, by name."""
        answer = await self.cluster.metadata()
        described = [_topic(topic) for topic in answer.topics if not topic.error_code]
        return sorted(described, key=lambda topic: topic.name)

    async def describe_topics(self, names: Iterable[str]) -> list[TopicDescription]:
        """These topics, in this order; raises KafkaError for the first that is not there."""
        names = list(names)
        answer = await self.cluster.metadata(names)
        for topic in answer.topics:
            raise_for(topic.error_code, topic.name)
        described = {topic.name: topic for topic in map(_topic, answer.topics)}
        return [described[name] for name in names]

    async def list_groups(self) -> list[GroupListing]:
        """Every group of every coordinator, by name."""
        nodes = await self.cluster.nodes()
        listed = await asyncio.gather(*(self._groups_of(node.id) for node in nodes))
        return sorted(group for groups in listed for group in groups)

    async def describe_group(self, group: str) -> GroupDescription:
        """One group and its members; a group that does not exist is described as Dead."""
        request = describe_groups.DescribeGroupsRequest(groups=[group])
        answer = await self.cluster.to_coordinator(
            group, request, lambda answer: (each.error_code for each in answer.groups)
        )
        found = answer.groups[0]
        raise_for(found.error_code, group)
        return GroupDescription(
            group=group,
            state=found.group_state,
            protocol_type=found.protocol_type,
            assignor=found.protocol_data,
            coordinator=await self.cluster.coordinator_of(group),
            members=[_member(member, found.protocol_type) for member in found.members],
        )

    async def committed_offsets(self, group: str) -> dict[TopicPartition, Committed]:
        """What ``group`` has committed, in every partition of every topic."""
        request = offset_fetch.OffsetFetchRequest(group_id=group, topics=None)
        answer = await self.cluster.to_coordinator(group, request, _codes_of_offset_fetch)
        raise_for(answer.error_code, group)
        return {
            TopicPartition(topic.name, each.partition_index): Committed(
                offset=each.committed_offset,
                metadata=each.metadata or "",
                leader_epoch=each.committed_leader_epoch,
            )
            for topic in answer.topics
            for each in topic.partitions
            if each.committed_offset != _NO_OFFSET and not each.error_code
        }

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermark of each partition; one whose leader cannot be asked is left out."""
        return await self._offsets(partitions, LATEST)

    async def start_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """The first offset still kept, of each partition whose leader can be asked."""
        return await self._offsets(partitions, EARLIEST)

    async def progress(self, group: GroupDescription) -> list[Progress]:
        """How far ``group`` is in every partition it has committed or was given.

        In the order of topics and partitions; members without a partition come last.
        """
        committed = await self.committed_offsets(group.group)
        owners = {place: member for member in group.members for place in member.assignment}
        places = sorted({*committed, *owners})
        ends = await self.end_offsets(places)
        starts = await self.start_offsets(places)
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
            for place in places
        ]
        idle = [member for member in group.members if not member.assignment]
        return rows + [Progress(group=group.group, member=member) for member in idle]

    async def close(self) -> None:
        """Close the connections."""
        await self.cluster.close()

    async def __aenter__(self) -> Self:
        """The administrator; nothing is connected before the first call."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    async def _groups_of(self, node_id: int) -> list[GroupListing]:
        request = list_groups.ListGroupsRequest()
        answer = await self.cluster.to_node(node_id, request, lambda answer: [answer.error_code])
        raise_for(answer.error_code)
        return [
            GroupListing(
                group=each.group_id,
                protocol_type=each.protocol_type,
                state=each.group_state,
                coordinator=node_id,
            )
            for each in answer.groups
        ]

    async def _offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Ask all leaders at once, then once more for those whose leader moved meanwhile."""
        missing = list(partitions)
        found: dict[TopicPartition, int] = {}
        for _ in range(_ROUNDS):
            by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
            for place, leader in (await self.cluster.leaders(missing)).items():
                by_leader[leader].append(place)
            asked = (self._offsets_at(*each, timestamp) for each in by_leader.items())
            for offsets in await asyncio.gather(*asked):
                found.update(offsets)
            missing = [place for place in missing if place not in found]
            if not missing:
                break
            self.cluster.forget_leaders(missing)
        return found

    async def _offsets_at(
        self, leader: int, places: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        topics: dict[str, list[list_offsets.Partition]] = defaultdict(list)
        for place in places:
            topics[place.topic].append(
                list_offsets.Partition(partition_index=place.partition, timestamp=timestamp)
            )
        asked = [list_offsets.Topic(name=name, partitions=each) for name, each in topics.items()]
        request = list_offsets.ListOffsetsRequest(replica_id=-1, topics=asked)
        try:
            answer = await self.cluster.ask(leader, request)
        except KafkaError as error:
            if not error.retriable:
                raise
            return {}
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code
        }


def _topic(topic: metadata.TopicResult) -> TopicDescription:
    partitions = [
        PartitionDescription(
            partition=each.partition_index,
            leader=each.leader_id if each.leader_id >= 0 else None,
            replicas=list(each.replica_nodes),
            in_sync=list(each.isr_nodes),
        )
        for each in topic.partitions
    ]
    partitions.sort(key=lambda each: each.partition)
    return TopicDescription(
        name=topic.name or "", is_internal=topic.is_internal, partitions=partitions
    )


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
            TopicPartition(each.topic, partition)
            for each in assigned
            for partition in each.partitions
        ),
    )


def _codes_of_topics(answer: Any) -> Iterable[int]:
    return (topic.error_code for topic in answer.topics)


def _codes_of_deletion(answer: Any) -> Iterable[int]:
    """What the controller does not know will not come by waiting."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return (each.error_code for each in answer.responses if each.error_code != unknown)


def _codes_of_partitions(answer: Any) -> Iterable[int]:
    return (each.error_code for topic in answer.topics for each in topic.partitions)


def _codes_of_offset_fetch(answer: Any) -> Iterable[int]:
    yield answer.error_code
    yield from _codes_of_partitions(answer)
