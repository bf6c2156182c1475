"""Starts, ends, last stable offsets and latest timestamps of many logs, with one question a leader.

Source: docs/spec/protocol.md §2 (ListOffsets); KIP-734 for the latest timestamp.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.errors import KafkaError
from barnabas.protocol.messages import list_offsets

LATEST: Final = -1
EARLIEST: Final = -2
NEWEST_TIME: Final = -3
COMMITTED: Final = 1

Found = dict[TopicPartition, list_offsets.PartitionResult]


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Where a log starts and ends; None for what its leader did not tell."""

    start: int | None
    end: int | None
    """The high watermark."""
    stable: int | None
    """The last stable offset: below the end while a transaction is open."""
    newest_ms: int | None
    """The latest timestamp of a record, milliseconds since 1970; None in an empty log."""


async def log_ends(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogEnds]:
    """All four of each partition whose leader can be asked. Raises KafkaError."""
    wanted = list(partitions)
    starts, ends, stable, newest = await asyncio.gather(
        look_up(cluster, wanted, EARLIEST),
        look_up(cluster, wanted, LATEST),
        look_up(cluster, wanted, LATEST, COMMITTED),
        look_up(cluster, wanted, NEWEST_TIME),
    )
    return {
        place: LogEnds(
            _offset(starts, place), _offset(ends, place), _offset(stable, place),
            _newest(newest, place),
        )
        for place in wanted
    }  # fmt: skip


async def look_up(
    cluster: Cluster, partitions: Sequence[TopicPartition], timestamp: int, isolation: int = 0
) -> Found:
    """What the leaders say; a partition without a leader, or whose leader fails, is left out."""
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for place, leader in (await cluster.leaders(partitions)).items():
        by_leader[leader].append(place)
    answers = await asyncio.gather(
        *(ask_leader(cluster, leader, dict.fromkeys(places, timestamp), isolation)
          for leader, places in by_leader.items())
    )  # fmt: skip
    found = {place: result for answer in answers for place, result in answer.items()}
    cluster.forget_leaders(place for place in partitions if place not in found)
    return found


async def ask_leader(
    cluster: Cluster, leader: int, timestamps: Mapping[TopicPartition, int], isolation: int = 0
) -> Found:
    """What one node says of logs that it leads; a partition that it refuses is left out.

    Nothing when the request fails in a way that may pass. Raises KafkaError otherwise.
    """
    topics: dict[str, list[list_offsets.Partition]] = defaultdict(list)
    for place, timestamp in timestamps.items():
        topics[place.topic].append(
            list_offsets.Partition(partition_index=place.partition, timestamp=timestamp)
        )
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[list_offsets.Topic(name=name, partitions=of) for name, of in topics.items()],
    )
    try:
        answer = await cluster.ask(leader, request)
    except KafkaError as error:
        if not error.retriable:
            raise
        return {}
    return {
        TopicPartition(topic.name, result.partition_index): result
        for topic in answer.topics
        for result in topic.partitions
        if not result.error_code
    }


def _offset(found: Found, place: TopicPartition) -> int | None:
    return found[place].offset if place in found else None


def _newest(found: Found, place: TopicPartition) -> int | None:
    return found[place].timestamp if place in found and found[place].timestamp >= 0 else None
