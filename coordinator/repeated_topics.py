"""OffsetFetch of a topic that is named more than once: one result each, as Kafka answers."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.messages.offset_fetch import Topic


def merged(topics: Sequence[Topic]) -> Sequence[Topic]:
    """The same with each topic once, as Kafka answers."""
    by_name: dict[str, Topic] = {}
    for topic in topics:
        earlier = by_name.get(topic.name)
        if earlier is not None:
            indexes = [*earlier.partition_indexes, *topic.partition_indexes]
            topic = Topic(name=topic.name, partition_indexes=indexes)
        by_name[topic.name] = topic
    return topics if len(by_name) == len(topics) else list(by_name.values())
