"""Time lag: finds the timestamp of the first record that a group has not read yet.

Source: docs/spec/users.md §3. Only a few batches are fetched, and of each partition no more than it
takes to see one record.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.client.cluster import Cluster, TopicPartition
from barnabas.client.consumer.single_fetch import entries
from barnabas.client.errors import KafkaError
from barnabas.client.turns import Turns
from barnabas.protocol.messages import fetch
from barnabas.protocol.records import batch
from barnabas.protocol.records.corrupt_records import CorruptRecords
from barnabas.protocol.records.header import DELETE_HORIZON
from barnabas.protocol.records.walk import Entry

_ROUNDS: Final = 8
_BYTES_FIRST: Final = 4 << 10
_BYTES_MOST: Final = 8 << 20
_GROWTH: Final = 8
"""How much more of a partition is asked for when a round brought no whole batch of it."""
_ANSWER_BYTES_MAX: Final = 16 << 20
_MAGIC_WITH_CONTROL: Final = 2


class UnreadRange(NamedTuple):
    """What is not read yet: from ``start`` up to the log's ``end``, which is not part of it."""

    start: int
    end: int


async def first_unread_ms(
    cluster: Cluster, unread: Mapping[TopicPartition, UnreadRange], *, within_ms: int = 0
) -> dict[TopicPartition, int | None]:
    """The timestamp of the first record in each range, markers of transactions apart.

    None where there is none (nothing is left to read, whatever the offsets say), -1 where it has
    no timestamp. What could not be found out is left out: no leader, or too much without a record.
    With ``within_ms`` the records of a batch are not looked at where its header says when they
    were written to within so much.
    """
    found: dict[TopicPartition, int | None] = {}
    open_ranges = dict(unread)
    bytes_max = _BYTES_FIRST
    for _ in range(_ROUNDS):
        for topic_partition, (start, end) in list(open_ranges.items()):
            if start >= end:
                found[topic_partition] = None
                del open_ranges[topic_partition]
        if not open_ranges:
            break
        by_leader: dict[int, dict[TopicPartition, UnreadRange]] = defaultdict(dict)
        for topic_partition, leader in (await cluster.leaders(open_ranges)).items():
            by_leader[leader][topic_partition] = open_ranges[topic_partition]
        looks = (_look(cluster, *led, bytes_max, within_ms) for led in by_leader.items())
        for times, others in await asyncio.gather(*looks):
            found.update(times)
            for topic_partition, rest in others.items():
                del open_ranges[topic_partition]  # behind those that had no turn yet
                open_ranges[topic_partition] = rest
            for topic_partition in times:
                del open_ranges[topic_partition]
        bytes_max = min(bytes_max * _GROWTH, _BYTES_MOST)
    return found


async def _look(
    cluster: Cluster,
    leader: int,
    ranges: Mapping[TopicPartition, UnreadRange],
    bytes_max: int,
    within_ms: int,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, UnreadRange]]:
    """One fetch: what it tells, and where those partitions go on that it does not tell of."""
    times: dict[TopicPartition, int] = {}
    others: dict[TopicPartition, UnreadRange] = {}
    try:
        answer: fetch.FetchResponse = await cluster.ask(leader, _request(ranges, bytes_max))
    except KafkaError as error:
        if not error.retriable:
            raise
        cluster.forget_leaders(ranges)
        return times, others
    turns = Turns()
    for topic in answer.responses:
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.topic, partition.partition_index)
            if partition.error_code:
                cluster.forget_leaders([topic_partition])
            elif topic_partition in ranges and partition.records:
                await turns.pause()
                found = _first(bytes(partition.records), ranges[topic_partition], within_ms)
                if isinstance(found, UnreadRange):
                    others[topic_partition] = found
                else:
                    times[topic_partition] = found
    return times, others


def _first(data: bytes, unread: UnreadRange, within_ms: int = 0) -> int | UnreadRange:
    """The first record's timestamp, or what is left to be looked at."""
    start, end = unread
    last = start - 1
    try:
        for entry in entries(data, start):
            if not _is_control(entry):
                found = _time_from_header(entry, unread, within_ms)
                if found is not None:
                    return found
                for record in batch.records(entry.data):
                    if record.offset >= start:
                        return record.timestamp if record.offset < end else UnreadRange(end, end)
            last = max(last, entry.last_offset)  # compaction leaves batches without a record
    except CorruptRecords:
        return unread
    return UnreadRange(last + 1, end)


def _time_from_header(entry: Entry, unread: UnreadRange, within_ms: int) -> int | None:
    if not within_ms or entry.magic != _MAGIC_WITH_CONTROL or entry.base_offset >= unread.end:
        return None
    head = batch.header(entry.data)
    spread = head.max_timestamp - head.base_timestamp
    is_sure = head.record_count and not head.attributes & DELETE_HORIZON
    return head.base_timestamp if is_sure and 0 <= spread <= within_ms else None


def _is_control(entry: Entry) -> bool:
    return entry.magic == _MAGIC_WITH_CONTROL and batch.is_control(entry.data)


def _request(ranges: Mapping[TopicPartition, UnreadRange], bytes_max: int) -> fetch.FetchRequest:
    topics: dict[str, list[fetch.Partition]] = defaultdict(list)
    for topic_partition, (start, _) in ranges.items():
        topics[topic_partition.topic].append(
            fetch.Partition(
                partition=topic_partition.partition,
                fetch_offset=start,
                partition_max_bytes=bytes_max,
            )
        )
    return fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_ANSWER_BYTES_MAX,
        topics=[fetch.Topic(topic=name, partitions=asked) for name, asked in topics.items()],
    )
