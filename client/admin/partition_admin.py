"""Administration of partitions: give them other replicas, elect their leaders, see their copies.

Source: docs/spec/protocol.md §2 (AlterPartitionReassignments, ElectLeaders, DescribeLogDirs);
docs/spec/cluster.md §2.6 and §2.12; KIP-455, KIP-460.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import KafkaError, known_code, raise_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    alter_partition_reassignments,
    describe_log_dirs,
    elect_leaders,
    incremental_alter_configs,
    list_partition_reassignments,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1
BROKER: Final = 4
TOPIC: Final = 2
SET: Final = 0
DELETE: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingMove:
    """A partition whose replicas are being changed."""

    replicas: Sequence[int]
    """All that it has now: those that stay, come and go."""
    adding: Sequence[int]
    removing: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """A copy of a partition on one node's disk."""

    bytes: int
    behind: int
    """Offsets that it lacks."""


Outcomes = dict[TopicPartition, KafkaError | None]
"""Why each partition was refused; None where it was not."""


async def alter_reassignments(
    cluster: Cluster, wishes: Mapping[TopicPartition, Sequence[int] | None]
) -> Outcomes:
    """Give each partition these replicas, in this order, or call its move off (None).

    Answered when the controller has written it down: copies follow. Raises KafkaError for the
    request as a whole, such as CLUSTER_AUTHORIZATION_FAILED.
    """
    topics: dict[str, list[alter_partition_reassignments.Partition]] = defaultdict(list)
    for place, replicas in wishes.items():
        topics[place.topic].append(
            alter_partition_reassignments.Partition(
                partition_index=place.partition,
                replicas=None if replicas is None else list(replicas),
            )
        )
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.config.request_timeout_ms,
        topics=[
            alter_partition_reassignments.Topic(name=name, partitions=of)
            for name, of in topics.items()
        ],
    )
    answer = await cluster.to_controller(request, _whole)
    _check(answer.error_code, answer.error_message, "AlterPartitionReassignments", "Alter")
    return {
        TopicPartition(topic.name, found.partition_index): _error(
            found.error_code, found.error_message
        )
        for topic in answer.responses
        for found in topic.partitions
    }


async def ongoing_moves(cluster: Cluster) -> dict[TopicPartition, OngoingMove]:
    """Every partition whose replicas are being changed. Raises KafkaError."""
    request = list_partition_reassignments.ListPartitionReassignmentsRequest(
        timeout_ms=cluster.config.request_timeout_ms, topics=None
    )
    answer = await cluster.to_controller(request, _whole)
    _check(answer.error_code, answer.error_message, "ListPartitionReassignments", "Describe")
    return {
        TopicPartition(topic.name, found.partition_index): OngoingMove(
            replicas=list(found.replicas),
            adding=list(found.adding_replicas),
            removing=list(found.removing_replicas),
        )
        for topic in answer.topics
        for found in topic.partitions
    }


async def elect(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, *, is_unclean: bool = False
) -> Outcomes:
    """Elect the preferred leader of each, or with ``is_unclean`` any live replica (records go).

    None means every partition; then only those are told of that needed it. ELECTION_NOT_NEEDED
    says that it has that leader already. Raises KafkaError for the request as a whole.
    """
    topics: dict[str, list[int]] | None = None
    if partitions is not None:
        topics = defaultdict(list)
        for place in partitions:
            topics[place.topic].append(place.partition)
    request = elect_leaders.ElectLeadersRequest(
        election_type=UNCLEAN if is_unclean else PREFERRED,
        topic_partitions=None
        if topics is None
        else [elect_leaders.TopicPartitions(topic=name, partitions=of)
              for name, of in topics.items()],
        timeout_ms=cluster.config.request_timeout_ms,
    )  # fmt: skip
    answer = await cluster.to_controller(request, _whole)
    _check(answer.error_code, None, "ElectLeaders", "Alter")
    return {
        TopicPartition(topic.topic, found.partition_id): _error(
            found.error_code, found.error_message
        )
        for topic in answer.replica_election_results
        for found in topic.partition_result
    }


async def replica_sizes(
    cluster: Cluster, node: int, partitions: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, ReplicaSize]:
    """The copies on one node, of these partitions or of all (None). Raises KafkaError."""
    asked = None
    if partitions is not None:
        topics: dict[str, list[int]] = defaultdict(list)
        for place in partitions:
            topics[place.topic].append(place.partition)
        asked = [describe_log_dirs.Topic(topic=name, partitions=of) for name, of in topics.items()]
    answer = await cluster.ask(node, describe_log_dirs.DescribeLogDirsRequest(topics=asked))
    raise_for(answer.error_code)
    return {
        TopicPartition(topic.name, found.partition_index): ReplicaSize(
            found.partition_size, found.offset_lag
        )
        for directory in answer.results
        for topic in directory.topics
        for found in topic.partitions
        if not found.is_future_key
    }


async def sizes_on(
    cluster: Cluster, nodes: Iterable[int], partitions: Sequence[TopicPartition]
) -> dict[int, dict[TopicPartition, ReplicaSize]]:
    """The copies of these partitions by node; a node that cannot be asked tells of none."""

    async def of(node: int) -> dict[TopicPartition, ReplicaSize]:
        try:
            return await replica_sizes(cluster, node, partitions)
        except KafkaError:
            return {}

    wanted = list(nodes)
    return dict(zip(wanted, await asyncio.gather(*map(of, wanted)), strict=True))


async def alter_node_settings(
    cluster: Cluster, node: int, settings: Mapping[str, str | None]
) -> None:
    """Set settings of one node while it runs; None takes one back. Raises KafkaError.

    Asked of the node itself: Apache Kafka's refuse to change another's.
    """
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.Resource(
                resource_type=BROKER,
                resource_name=str(node),
                configs=[
                    incremental_alter_configs.Config(
                        name=name, config_operation=DELETE if value is None else SET, value=value
                    )
                    for name, value in settings.items()
                ],
            )
        ],
        validate_only=False,
    )
    answer = await cluster.to_node(
        node, request, lambda answer: (result.error_code for result in answer.responses)
    )
    for result in answer.responses:
        raise_for(result.error_code, result.error_message or f"node {node}")


def _whole(answer: Any) -> Iterable[int]:
    """What is said of one partition holds up no other, and is not tried again by itself."""
    yield answer.error_code


def _check(code: int, message: str | None, api: str, operation: str) -> None:
    """Raise KafkaError for what was refused as a whole; it names the right that lacks."""
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise KafkaError(code, f"{api} needs the right {operation} on the cluster")
    raise_for(code, message)


def _error(code: int, message: str | None) -> KafkaError | None:
    return KafkaError(known_code(code), message or "") if code else None


def is_needless(error: KafkaError | None) -> bool:
    """Whether an election was refused since that leader leads already."""
    return error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED
