"""Fetch requests for one partition, for those who read a log now and then, or in ranges.

Source: docs/spec/protocol.md §2; whoever reads many partitions on and on uses fetcher.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import KafkaError, raise_for
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import fetch
from barnabas.protocol.records.walk import Walk

_BYTES_MAX: Final = 4 << 20


async def fetch_batches(cluster: Cluster, topic_partition: TopicPartition, offset: int) -> bytes:
    """Batches as they are stored, 4 MiB or one batch; the first may begin before ``offset``.

    Empty at the end of the log. Raises KafkaError.
    """
    request = fetch_request_of(topic_partition, offset, bytes_max=_BYTES_MAX)
    found = partition_result_of(await cluster.to_leader(topic_partition, request, codes_of))
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


def codes_of(answer: fetch.FetchResponse) -> Iterable[int]:
    """The error codes in the answer to such a request, for :meth:`Cluster.to_leader`.

    A broker that throttles answers without any partition, and without an error (KIP-219): that
    must be asked again, or records that are there would count as none.
    """
    yield answer.error_code
    results = _results(answer)
    yield from (result.error_code for result in results)
    if not answer.error_code and not results:
        yield ErrorCode.THROTTLING_QUOTA_EXCEEDED


def partition_result_of(answer: fetch.FetchResponse) -> fetch.PartitionResult:
    """What came of such a request.

    Raises KafkaError when the answer as a whole is an error, and THROTTLING_QUOTA_EXCEEDED when it
    is empty.
    """
    raise_for(answer.error_code)
    results = _results(answer)
    if not results:
        raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the broker held its answer back")
    return results[0]


def _results(answer: fetch.FetchResponse) -> list[fetch.PartitionResult]:
    return [partition for topic in answer.responses for partition in topic.partitions]
