"""Asks the controller whether a topic could be made, or given partitions, and changes nothing.

Source: docs/spec/protocol.md §2 (CreateTopics, CreatePartitions; ``validate_only``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.client.cluster import Cluster
from barnabas.client.errors import raise_for
from barnabas.protocol.messages import create_partitions, create_topics

from .descriptions import NewTopic


async def validate_topic(cluster: Cluster, topic: NewTopic) -> None:
    """Raises KafkaError with what the controller would refuse the topic for."""
    request = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.Topic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                configs=[
                    create_topics.Config(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
        ],
        timeout_ms=cluster.config.request_timeout_ms,
        validate_only=True,
    )
    answer = await cluster.to_controller(request, _codes_of_topics)
    for result in answer.topics:
        raise_for(result.error_code, result.error_message or topic.name)


async def validate_partitions(cluster: Cluster, topic: str, count: int) -> None:
    """Raises KafkaError with what the controller would refuse ``count`` partitions for."""
    request = create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.Topic(name=topic, count=count, assignments=None)],
        timeout_ms=cluster.config.request_timeout_ms,
        validate_only=True,
    )
    answer = await cluster.to_controller(request, _codes_of_partitions)
    for result in answer.results:
        raise_for(result.error_code, result.error_message or topic)


def _codes_of_topics(answer: Any) -> Iterable[int]:
    return (topic.error_code for topic in answer.topics)


def _codes_of_partitions(answer: Any) -> Iterable[int]:
    return (result.error_code for result in answer.results)
