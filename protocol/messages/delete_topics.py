"""DeleteTopics (key 20): deletes topics.

Source: docs/spec/protocol.md §2; docs/spec/cluster.md §2.11.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.codec.wire import INT16, INT32, STRING, UUID, array, message, wire


@message()
class Topic:
    """One topic, by name or by id; from v6."""

    name: str | None = wire(STRING, null_since=0, default=None)
    topic_id: bytes = wire(UUID)


@message(key=20, versions=(0, 6), advertised=6, flexible=4)
class DeleteTopicsRequest:
    """The topics to delete; the controller alone serves it."""

    topics: Sequence[Topic] = wire(array(Topic), since=6)
    topic_names: Sequence[str] = wire(array(STRING), until=5)
    timeout_ms: int = wire(INT32)


@message()
class TopicResult:
    """What became of one topic."""

    name: str | None = wire(STRING, null_since=6)
    topic_id: bytes = wire(UUID, since=6)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=5, null_since=5, default=None)


@message(key=20, versions=(0, 6), flexible=4)
class DeleteTopicsResponse:
    """What became of each topic."""

    throttle_time_ms: int = wire(INT32, since=1)
    responses: Sequence[TopicResult] = wire(array(TopicResult))
