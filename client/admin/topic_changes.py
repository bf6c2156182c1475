"""Changes existing topics: adds partitions, alters settings.

Source: docs/spec/protocol.md §2 (CreatePartitions, IncrementalAlterConfigs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import raise_for
from barnabas.protocol.messages import create_partitions, incremental_alter_configs

TOPIC: Final = 2
SET: Final = 0
DELETE: Final = 1


async def add_partitions(cluster: Cluster, topic: str, count: int) -> None:
    """Let a topic have ``count`` partitions, more than before; raises KafkaError."""
    request = create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.Topic(name=topic, count=count, assignments=None)],
        timeout_ms=cluster.config.request_timeout_ms,
        validate_only=False,
    )
    answer = await cluster.to_controller(request, _codes_of_partitions)
    for result in answer.results:
        raise_for(result.error_code, result.error_message or topic)


async def alter_settings(
    cluster: Cluster, topic: str, settings: Mapping[str, str], removed: Iterable[str] = ()
) -> None:
    """Set and take back single settings of a topic, all or none; raises KafkaError."""
    changes: list[tuple[str, int, str | None]] = [
        (name, SET, value) for name, value in settings.items()
    ]
    changes += [(name, DELETE, None) for name in removed]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.Resource(
                resource_type=TOPIC,
                resource_name=topic,
                configs=[
                    incremental_alter_configs.Config(
                        name=name, config_operation=operation, value=value
                    )
                    for name, operation, value in changes
                ],
            )
        ],
        validate_only=False,
    )
    answer = await cluster.to_controller(request, _codes_of_settings)
    for result in answer.responses:
        raise_for(result.error_code, result.error_message or topic)


def _codes_of_partitions(answer: Any) -> Iterable[int]:
    return (result.error_code for result in answer.results)


def _codes_of_settings(answer: Any) -> Iterable[int]:
    return (result.error_code for result in answer.responses)
