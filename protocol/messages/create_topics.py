"""CreateTopics (key 19): creates topics.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.9.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import (
    BOOL,
    INT8,
    INT16,
    INT32,
    STRING,
    UUID,
    array,
    message,
    wire,
)


@message()
class Assignment:
    """The replicas of one partition, chosen by hand."""

    partition_index: int = wire(INT32)
    broker_ids: Sequence[int] = wire(array(INT32))


@message()
class Config:
    """One setting of a topic."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, null_since=0)


@message()
class Topic:
    """One topic to create."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    """-1 for the broker's default, from v4, or when assigned by hand."""
    replication_factor: int = wire(INT16)
    assignments: Sequence[Assignment] = wire(array(Assignment))
    configs: Sequence[Config] = wire(array(Config))


@message(key=19, versions=(0, 7), advertised=7, flexible=5)
class CreateTopicsRequest:
    """The topics to create; the controller alone serves it."""

    topics: Sequence[Topic] = wire(array(Topic))
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL, since=1)


@message()
class ConfigResult:
    """One setting in force, from v5."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, null_since=0)
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8, default=-1)
    is_sensitive: bool = wire(BOOL)


@message()
class TopicResult:
    """What became of one topic."""

    name: str = wire(STRING)
    topic_id: bytes = wire(UUID, since=7)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=1, null_since=0)
    topic_config_error_code: int = wire(INT16, since=5, tag=0)
    """Why the settings are not told."""
    num_partitions: int = wire(INT32, since=5, default=-1)
    replication_factor: int = wire(INT16, since=5, default=-1)
    configs: Sequence[ConfigResult] | None = wire(array(ConfigResult), since=5, null_since=5)


@message(key=19, versions=(0, 7), flexible=5)
class CreateTopicsResponse:
    """What became of each topic."""

    throttle_time_ms: int = wire(INT32, since=2)
    topics: Sequence[TopicResult] = wire(array(TopicResult))
