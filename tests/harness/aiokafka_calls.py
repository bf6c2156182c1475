"""Every call of aiokafka's AIOKafkaAdminClient, made on an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from .admin_calls import Calls


def aiokafka_calls(
    runner: asyncio.Runner, admin: AIOKafkaAdminClient, topic: str, group: str
) -> Calls:
    """The calls of a topic and of a group; see admin_calls for what these hold."""
    topic_partition = TopicPartition(topic, 0)
    more = NewTopic(f"{topic}-more", 1, 1)
    shown = ConfigResource(ConfigResourceType.TOPIC, topic)
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "86400000"})
    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "describe_cluster": lambda: admin.describe_cluster(),
        "list_topics": lambda: admin.list_topics(),
        "describe_topics": lambda: admin.describe_topics([topic]),
        "create_topics to validate": lambda: admin.create_topics([more], validate_only=True),
        "create_topics": lambda: admin.create_topics([more]),
        "delete_topics of two": lambda: admin.delete_topics([f"{topic}-more"]),
        "create_partitions": lambda: admin.create_partitions({topic: NewPartitions(4)}),
        "delete_records": lambda: admin.delete_records({topic_partition: RecordsToDelete(1)}),
        "describe_configs": lambda: admin.describe_configs([shown], include_synonyms=True),
        "alter_configs": lambda: admin.alter_configs([changed]),
        "list_consumer_groups": lambda: admin.list_consumer_groups(),
        "find_coordinator": lambda: admin.find_coordinator(group),
        "describe_consumer_groups": lambda: admin.describe_consumer_groups([group]),
        "list_consumer_group_offsets": lambda: admin.list_consumer_group_offsets(group),
        "delete_topics": lambda: admin.delete_topics([topic]),
    }
    return {name: _blocking(runner, call) for name, call in calls.items()}


def _blocking(
    runner: asyncio.Runner, call: Callable[[], Coroutine[Any, Any, Any]]
) -> Callable[[], object]:
    return lambda: runner.run(call())
