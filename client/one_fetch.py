"""One fetch of what a partition holds from an offset on, for those who read a log now and then.

Source: protocol.md section 2; whoever reads on and on uses fetcher.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from barnabas.protocol.messages import fetch

from .cluster import Cluster, TopicPartition
from .errors import KafkaError

_BYTES_MAX: Final = 4 << 20


async def fetched(cluster: Cluster, place: TopicPartition, offset: int) -> bytes:
    """Batches as they are stored, 4 MiB or one batch; the first may begin before ``offset``.

    Empty at the end of the log. Raises KafkaError.
    """
    asked = fetch.Partition(
        partition=place.partition, fetch_offset=offset, partition_max_bytes=_BYTES_MAX
    )
    request = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_BYTES_MAX,
        topics=[fetch.Topic(topic=place.topic, partitions=[asked])],
    )
    answer: fetch.FetchResponse = await cluster.to_leader(place, request, _codes)
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code:
                raise KafkaError(each.error_code, f"{place.topic}-{place.partition}")
            return bytes(each.records or b"")
    return b""


def _codes(answer: Any) -> Iterable[int]:
    return (each.error_code for topic in answer.responses for each in topic.partitions)
