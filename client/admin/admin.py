"""Admin: topics are created, deleted and described here.

Groups are in group_admin.py, their settings in group_settings_admin.py, transactions in
transaction_admin.py, access control lists in acl_admin.py, delegation tokens in token_admin.py.

Source: docs/spec/protocol.md §2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from barnabas.client.client_config import ClientConfig
from barnabas.client.cluster import Cluster
from barnabas.client.errors import raise_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import create_topics, delete_topics, metadata

from .acl_admin import AclAdmin
from .descriptions import NewTopic, PartitionDescription, TopicDescription
from .group_admin import GroupAdmin
from .group_settings_admin import GroupSettingsAdmin
from .token_admin import TokenAdmin
from .transaction_admin import TransactionAdmin


class Admin(AclAdmin, GroupAdmin, GroupSettingsAdmin, TokenAdmin, TransactionAdmin):
    """Asks and changes what a cluster knows; every call retries as its error codes allow.

    Use it in ``async with``, or close it.
    """

    @classmethod
    def of(cls, bootstrap: str | Sequence[str], config: ClientConfig | None = None) -> Admin:
        """An administrator of the cluster at ``bootstrap``; connects at the first call."""
        return cls(Cluster(bootstrap, config))

    async def create_topics(self, topics: Iterable[NewTopic], *, exist_ok: bool = False) -> None:
        """Create topics; returns when the controller has made them.

        With ``exist_ok`` one that is there already is left as it is. Raises KafkaError for the
        first that was refused; the others may exist nevertheless.
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
            if not (exist_ok and topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS):
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


def _topic(topic: metadata.TopicResult) -> TopicDescription:
    partitions = [
        PartitionDescription(
            partition=partition.partition_index,
            leader=partition.leader_id if partition.leader_id >= 0 else None,
            replicas=list(partition.replica_nodes),
            in_sync=list(partition.isr_nodes),
        )
        for partition in topic.partitions
    ]
    partitions.sort(key=lambda description: description.partition)
    return TopicDescription(
        name=topic.name or "", is_internal=topic.is_internal, partitions=partitions
    )


def _codes_of_topics(answer: Any) -> Iterable[int]:
    return (topic.error_code for topic in answer.topics)


def _codes_of_deletion(answer: Any) -> Iterable[int]:
    """What the controller does not know will not come by waiting."""
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return (response.error_code for response in answer.responses if response.error_code != unknown)
