"""Changes existing topics: adds partitions, alters settings, those of groups as well.

Source: docs/spec/protocol.md §2 (CreatePartitions, IncrementalAlterConfigs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import raise_for
from barnabas.protocol.messages import create_partitions, incremental_alter_configs

from .topic_configs import TOPIC

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
    cluster: Cluster,
    name: str,
    settings: Mapping[str, str],
    removed: Iterable[str] = (),
    *,
    kind: int = TOPIC,
) -> None:
    """Set and take back single settings of a topic, or of a group, all or none.

    Raises KafkaError.
    """
    changes: list[tuple[str, int, str | None]] = [
        (setting, SET, value) for setting, value in settings.items()
    ]
    changes += [(setting, DELETE, None) for setting in removed]
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.Resource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs.Config(
                        name=setting, config_operation=operation, value=value
                    )
                    for setting, operation, value in changes
                ],
            )
        ],
        validate_only=False,
    )
    answer = await cluster.to_controller(request, _codes_of_settings)
    for result in answer.responses:
        raise_for(result.error_code, result.error_message or name)


def _codes_of_partitions(answer: Any) -> Iterable[int]:
    return (result.error_code for result in answer.results)


def _codes_of_settings(answer: Any) -> Iterable[int]:
    return (result.error_code for result in answer.responses)
