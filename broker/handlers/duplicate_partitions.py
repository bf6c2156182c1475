"""A Produce request that names a partition more than once: what was named last counts.

No client does that. Kafka 3.9.1 keeps the records of a request in a map by partition: the last
ones named are appended and answered, once, and topics that were named twice are one in the
answer. tests/interop/test_duplicate_partitions.py asks both.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.protocol.messages.produce import Partition, Topic


def each_partition_once(topics: Sequence[Topic]) -> Sequence[Topic]:
    """The topics with each of their partitions once; the same object where they are already."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    last: dict[str, dict[int, Partition]] = {}
    named = 0
    for topic in topics:
        partitions = last.setdefault(topic.name, {})
        named += len(topic.partition_data)
        for one in topic.partition_data:
            partitions[one.index] = one
    if len(last) == len(topics) and named == sum(map(len, last.values())):
        return topics
    return [
        Topic(name=name, partition_data=list(partitions.values()))
        for name, partitions in last.items()
    ]
