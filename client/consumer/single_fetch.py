"""Fetch requests for one partition, for those who read a log now and then, or in ranges.

Source: docs/spec/protocol.md §2; whoever reads many partitions on and on uses fetcher.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import raise_for
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.walk import Walk

_BYTES_MAX: Final = 4 << 20


async def fetch_batches(cluster: Cluster, topic_partition: TopicPartition, offset: int) -> bytes:
    """Batches as they are stored, 4 MiB or one batch; the first may begin before ``offset``.

    Empty at the end of the log. Raises KafkaError.
    """
    request = fetch_request_of(topic_partition, offset, bytes_max=_BYTES_MAX)
    found = partition_result_of(await cluster.to_leader(topic_partition, request, _codes))
    raise_for(found.error_code, f"{topic_partition.topic}-{topic_partition.partition}")
    return bytes(found.records or b"")


def entries(data: bytes, offset: int) -> Walk:
    """The verified batches of what was fetched at ``offset``; the first may begin before it."""
    return Walk(data, base_offset=offset, previous_offset=-1)


def fetch_request_of(
    topic_partition: TopicPartition,
    offset: int,
    *,
    bytes_max: int,
    wait_ms: int = 0,
    isolation: int = 0,
) -> fetch.FetchRequest:
    """Ask for what one partition has from ``offset`` on, at least one batch of it.

    At its end the broker waits ``wait_ms`` for more to come.
    """
    partition = fetch.Partition(
        partition=topic_partition.partition, fetch_offset=offset, partition_max_bytes=bytes_max
    )
    return fetch.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1 if wait_ms else 0,
        max_bytes=bytes_max,
        isolation_level=isolation,
        topics=[fetch.Topic(topic=topic_partition.topic, partitions=[partition])],
    )


def partition_result_of(answer: fetch.FetchResponse) -> fetch.PartitionResult:
    """What came of such a request; raises KafkaError when the answer as a whole is an error."""
    raise_for(answer.error_code)
    return answer.responses[0].partitions[0]


def _codes(answer: fetch.FetchResponse) -> Iterable[int]:
    yield answer.error_code
    yield from (
        partition.error_code for topic in answer.responses for partition in topic.partitions
    )
