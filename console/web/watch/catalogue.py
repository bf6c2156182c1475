"""What a cluster consists of: nodes, topics, groups, settings, directories; each read on demand.

Source: docs/spec/console.md §2.3 (one Metadata in ten seconds; bytes for visible rows only).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from barnabas.client.admin.admin import Admin
from barnabas.client.admin.descriptions import SettingDescription
from barnabas.client.admin.topic_configs import describe_settings
from barnabas.client.cluster import AnswerMemory, TopicPartition
from barnabas.client.errors import KafkaError, known_code, raise_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_cluster, describe_log_dirs

from .known_groups import GroupLister, KnownGroups
from .known_topics import KnownTopics
from .reading import GLANCE_S, PATIENCE_S, Source, Sources

METADATA_S: Final = 10.0
MANY_PARTITIONS: Final = 20_000
MANY_METADATA_S: Final = 60.0
MANY_GROUPS: Final = 1_000
CLUSTER_S: Final = 2.0
GROUPS_S: Final = 5.0
DIRECTORIES_S: Final = 10.0
SETTINGS_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A broker that is up."""

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The cluster as a whole."""

    id: str | None
    controller: int | None
    nodes: Sequence[NodeInfo]


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory of a node; bytes of its file system, None where the node is too old."""

    path: str
    error: str | None
    total_bytes: int | None
    free_bytes: int | None


@dataclass(frozen=True, slots=True)
class Replica:
    """A copy of a partition on one node's disk."""

    node: int
    bytes: int
    behind: int
    """Offsets that it lacks."""


Replicas = dict[TopicPartition, list[Replica]]


class Catalogue:
    """Sources of what a cluster consists of; close it when nobody looks any more."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._metadata = AnswerMemory()
        self._answer: Any = None
        self._lister = GroupLister(admin)
        self.cluster: Source[ClusterInfo] = Source(self._cluster, CLUSTER_S)
        self.topics: Source[KnownTopics] = Source(self._topics, METADATA_S)
        self.groups: Source[KnownGroups] = Source(self._groups, GROUPS_S)
        self.directories: Sources[int, list[Directory]] = Sources(self._directories, DIRECTORIES_S)
        self.settings: Sources[str, list[SettingDescription]] = Sources(self._settings, SETTINGS_S)

    def expire(self) -> None:
        """Something was changed: ask anew."""
        for source in (self.cluster, self.topics, self.groups, self.settings):
            source.expire()

    def close(self) -> None:
        """Give up what is being asked."""
        for source in (
            self.cluster, self.topics, self.groups, self.directories, self.settings
        ):  # fmt: skip
            source.close()

    async def replicas(
        self, partitions: Iterable[TopicPartition], nodes: Iterable[int]
    ) -> Replicas:
        """The copies of these partitions on these nodes; a node that cannot be asked has none."""
        topics: dict[str, list[int]] = {}
        for place in partitions:
            topics.setdefault(place.topic, []).append(place.partition)
        asked = [describe_log_dirs.Topic(topic=name, partitions=of) for name, of in topics.items()]
        found: Replicas = {}
        for copies in await asyncio.gather(*(self._replicas_of(node, asked) for node in nodes)):
            for place, replica in copies:
                found.setdefault(place, []).append(replica)
        return found

    async def _replicas_of(
        self, node: int, asked: Sequence[describe_log_dirs.Topic]
    ) -> list[tuple[TopicPartition, Replica]]:
        try:
            answer = await self._admin.cluster.ask(
                node, describe_log_dirs.DescribeLogDirsRequest(topics=asked)
            )
        except KafkaError:
            return []
        return [
            (
                TopicPartition(topic.name, partition.partition_index),
                Replica(node, partition.partition_size, partition.offset_lag),
            )
            for directory in answer.results
            for topic in directory.topics
            for partition in topic.partitions
            if not partition.is_future_key
        ]

    async def _cluster(self) -> ClusterInfo:
        """As DescribeCluster says; brokers older than Kafka 2.8 tell the same by Metadata."""
        try:
            request = describe_cluster.DescribeClusterRequest(
                include_cluster_authorized_operations=False
            )
            answer = await self._admin.cluster.to_any(request)
            raise_for(answer.error_code, answer.error_message)
            nodes = [(node.broker_id, node.host, node.port, node.rack) for node in answer.brokers]
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            answer = await self._admin.cluster.metadata([])
            nodes = [(node.node_id, node.host, node.port, node.rack) for node in answer.brokers]
        controller = answer.controller_id if answer.controller_id >= 0 else None
        return ClusterInfo(
            answer.cluster_id, controller, [NodeInfo(*node) for node in sorted(nodes)]
        )

    async def _topics(self) -> KnownTopics:
        answer = await self._admin.cluster.all_topics(self._metadata)
        known = self.topics.known().value
        if known is None or answer is not self._answer:
            known, self._answer = KnownTopics(answer.topics), answer
        is_large = known.partitions > MANY_PARTITIONS
        # To read 100,000 partitions takes a second of the loop, if only in turns.
        self.topics.fresh_s = MANY_METADATA_S if is_large else METADATA_S
        self.topics.patience_s = GLANCE_S if is_large else PATIENCE_S
        return known

    async def _groups(self) -> KnownGroups:
        known = await self._lister.all_groups()
        self.groups.patience_s = GLANCE_S if len(known) > MANY_GROUPS else PATIENCE_S
        return known

    async def _directories(self, node: int) -> list[Directory]:
        # No topics: how large the directories are costs a node nothing, their content does.
        answer = await self._admin.cluster.ask(
            node, describe_log_dirs.DescribeLogDirsRequest(topics=[])
        )
        raise_for(answer.error_code)
        return [
            Directory(
                path=result.log_dir,
                error=known_code(result.error_code).name if result.error_code else None,
                total_bytes=result.total_bytes if result.total_bytes >= 0 else None,
                free_bytes=result.usable_bytes if result.usable_bytes >= 0 else None,
            )
            for result in answer.results
        ]

    async def _settings(self, topic: str) -> list[SettingDescription]:
        found = await describe_settings(self._admin.cluster, [topic])
        if topic not in found:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
        return found[topic]
