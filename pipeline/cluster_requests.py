"""What pipelines ask of a cluster besides records: partitions, offsets, and a group's progress.

Source: docs/spec/pipeline.md §1.3, §2 step 4 and §3.3; docs/spec/coordinator.md §1.6.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import KafkaError, known_code, raise_for
from barnabas.client.retry import Attempts
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import list_offsets, metadata, offset_commit

_NOT_A_MEMBER: Final = -1


async def partitions_of(
    cluster: Cluster, topics: Iterable[str], *, creates: bool = False
) -> list[TopicPartition]:
    """Every partition of these topics, internal ones too; raises KafkaError for a missing one.

    ``creates`` has a missing one made where the cluster is set to do that for producers.
    """
    names = list(topics)
    wanted = [metadata.Topic(name=name) for name in names]
    request = metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=creates)
    try:
        answer = await cluster.to_any(request, lambda answer: (t.error_code for t in answer.topics))
    except KafkaError as error:
        raise KafkaError(error.code, error.message or ", ".join(names)) from error
    for topic in answer.topics:
        raise_for(topic.error_code, topic.name)
    return _topic_partitions(answer.topics)


async def partitions_like(cluster: Cluster, pattern: str) -> list[TopicPartition]:
    """Every partition of topics in whose name ``pattern`` is found; internal ones must be named."""
    found = re.compile(pattern)
    answer = await cluster.metadata()
    return _topic_partitions(
        topic
        for topic in answer.topics
        if not topic.error_code and not topic.is_internal and found.search(topic.name or "")
    )


def _topic_partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return sorted(
        TopicPartition(topic.name, partition.partition_index)
        for topic in topics
        for partition in topic.partitions
    )


async def offsets_at(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int = 0
) -> dict[TopicPartition, int]:
    """The offset at a time in each partition: milliseconds, or LATEST, or EARLIEST.

    -1 where no record is that late. ``isolation`` 1 makes the latest the last stable offset.
    Asks again within ``default.api.timeout.ms`` while leaders move; raises KafkaError after it.
    """
    clock = asyncio.get_running_loop().time
    attempts = Attempts(cluster.config, Random(), clock())  # noqa: S311 - spreads retries
    found: dict[TopicPartition, int] = {}
    why = ErrorCode.LEADER_NOT_AVAILABLE
    while True:
        missing = [topic_partition for topic_partition in wanted if topic_partition not in found]
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for topic_partition, leader in (await cluster.leaders(missing)).items():
            by_leader[leader].append(topic_partition)
        asked = [
            _offsets_of(cluster, leader, topic_partitions, wanted, isolation)
            for leader, topic_partitions in by_leader.items()
        ]
        for offsets, code in await asyncio.gather(*asked):
            found.update(offsets)
            why = code or why
        if len(found) == len(wanted):
            return found
        pause_s = attempts.backoff_after(why, clock())
        if pause_s is None:
            raise KafkaError(why, "offsets of " + ", ".join(f"{t}-{p}" for t, p in missing))
        cluster.forget_leaders(missing)
        await asyncio.sleep(pause_s)


async def _offsets_of(
    cluster: Cluster,
    leader: int,
    topic_partitions: Iterable[TopicPartition],
    times: Mapping[TopicPartition, int],
    isolation: int,
) -> tuple[dict[TopicPartition, int], ErrorCode]:
    """What one broker knows, and one of the errors it gave that waiting may cure."""
    topics: dict[str, list[list_offsets.Partition]] = defaultdict(list)
    for topic_partition in topic_partitions:
        topics[topic_partition.topic].append(
            list_offsets.Partition(
                partition_index=topic_partition.partition, timestamp=times[topic_partition]
            )
        )
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            list_offsets.Topic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
    try:
        answer = await cluster.ask(leader, request)
    except KafkaError as error:
        if not error.retriable:
            raise
        return {}, error.code
    found, code = {}, ErrorCode.NONE
    for topic in answer.topics:
        for partition in topic.partitions:
            if not partition.error_code:
                found[TopicPartition(topic.name, partition.partition_index)] = partition.offset
                continue
            code = known_code(partition.error_code)
            if not code.retriable:
                raise KafkaError(code, f"{topic.name}-{partition.partition_index}")
    return found, code


async def committed(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    """What a group has committed."""
    from barnabas.client.admin.admin import Admin  # of all that it imports little is used here

    found = await Admin(cluster).committed_offsets(group)
    return {topic_partition: commit.offset for topic_partition, commit in found.items()}


async def commit(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], note: str = ""
) -> None:
    """Commit offsets of a group without members; ``note`` becomes the metadata of each.

    Doing it twice is harmless. Raises KafkaError, UNKNOWN_MEMBER_ID when the group has members.
    """
    topics: dict[str, list[offset_commit.Partition]] = defaultdict(list)
    for topic_partition in sorted(offsets):
        topics[topic_partition.topic].append(
            offset_commit.Partition(
                partition_index=topic_partition.partition,
                committed_offset=offsets[topic_partition],
                committed_metadata=note,
            )
        )
    if not topics:
        return
    request = offset_commit.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=_NOT_A_MEMBER,
        member_id="",
        topics=[
            offset_commit.Topic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
    answer = await cluster.to_coordinator(group, request, _codes)
    for topic in answer.topics:
        for partition in topic.partitions:
            raise_for(
                partition.error_code, f"group {group}, {topic.name}-{partition.partition_index}"
            )


def _codes(answer: Any) -> Iterable[int]:
    return (partition.error_code for topic in answer.topics for partition in topic.partitions)
