"""What happened to a cluster, read from ``__barnabas_events``.

Source: docs/spec/console.md §2.2 (E); protocol/events_topic.py has the format.
"""

from __future__ import annotations

import asyncio
import logging

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.single_fetch import entries, fetch_batches
from barnabas.protocol.errors import CorruptRequest, ErrorCode
from barnabas.protocol.events_topic import EVENTS_TOPIC, ClusterEvent, parse_event_value

from .admin import Admin

log = logging.getLogger(__name__)

RECORDS_MAX = 20_000
"""Of each partition, the latest."""


async def read_events(admin: Admin, *, since_ms: int) -> list[ClusterEvent]:
    """Events from ``since_ms`` on, the oldest first; none where the cluster keeps none.

    The same event may stand there twice, when its writer was not sure that it had arrived. Raises
    KafkaError.
    """
    answer = await admin.cluster.metadata([EVENTS_TOPIC])
    (topic,) = answer.topics
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    places = [TopicPartition(EVENTS_TOPIC, part.partition_index) for part in topic.partitions]
    ends = await admin.end_offsets(places)
    starts = await admin.start_offsets(places)
    found = await admin.offsets_at(places, max(0, since_ms))
    parts = await asyncio.gather(
        *(
            _read(admin.cluster, place, _start(place, starts, found, ends[place]), ends[place])
            for place in ends
            if place in starts
        )
    )
    events = [event for part in parts for event in part if event.time_ms >= since_ms]
    return sorted(events, key=lambda event: event.time_ms)


def _start(
    place: TopicPartition,
    starts: dict[TopicPartition, int],
    found: dict[TopicPartition, int | None],
    end: int,
) -> int:
    at = found.get(place)
    return max(starts[place], end - RECORDS_MAX, end if at is None else at)


async def _read(
    cluster: Cluster, place: TopicPartition, position: int, end: int
) -> list[ClusterEvent]:
    events: list[ClusterEvent] = []
    while position < end:
        data = await fetch_batches(cluster, place, position)
        before = position
        for entry, record in entries(data, position).records(position):
            position = entry.last_offset + 1
            if record.value is not None:
                try:
                    events.append(parse_event_value(bytes(record.value)))
                except CorruptRequest as error:
                    log.warning("skipped an event at=%d: %s", record.offset, error)
        if position <= before:
            break  # the log was cut meanwhile
    return events
