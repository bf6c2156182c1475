"""CreatePartitions (key 37): adds partitions to topics.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.9.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import BOOL, INT16, INT32, STRING, array, message, wire


@message()
class Assignment:
    """The replicas of one added partition."""

    broker_ids: Sequence[int] = wire(array(INT32))


@message()
class Topic:
    """One topic and its new number of partitions."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: Sequence[Assignment] | None = wire(array(Assignment), null_since=0)


@message(key=37, versions=(0, 3), advertised=3, flexible=2)
class CreatePartitionsRequest:
    """How many partitions each topic is to have."""

    topics: Sequence[Topic] = wire(array(Topic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)


@message()
class TopicResult:
    """The outcome for one topic."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, null_since=0, default=None)


@message(key=37, versions=(0, 3), advertised=3, flexible=2)
class CreatePartitionsResponse:
    """The outcome for each topic."""

    throttle_time_ms: int = wire(INT32)
    results: Sequence[TopicResult] = wire(array(TopicResult))
