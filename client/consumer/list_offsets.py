"""Offsets by time of many partitions: one question to each leader, again where one moved.

Source: docs/spec/protocol.md §2 (ListOffsets); docs/spec/coordinator.md §1.9 and §6.11.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from barnabas.client.cluster import Cluster
from barnabas.client.errors import KafkaError, known_code
from barnabas.client.retry import Attempts, Remedy, remedy
from barnabas.client.topology import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import list_offsets
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest

LATEST: Final = -1
"""The end of the log, as far as its readers may go."""
EARLIEST: Final = -2
"""The first offset still kept."""

Times = Mapping[TopicPartition, int]


async def offsets_for(
    cluster: Cluster, times: Times, *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """The first offset at or after each time in ms, or LATEST or EARLIEST; -1 for none so late.

    Returns when every partition has answered. Raises KafkaError for the first that cannot
    be asked within ``default.api.timeout.ms``, or at all.
    """
    loop = asyncio.get_running_loop()
    attempts = Attempts(cluster.config, cluster.random, loop.time())
    found: dict[TopicPartition, int] = {}
    missing = dict(times)
    while True:
        failures = await ask_leaders(cluster, missing, found, read_committed=read_committed)
        missing = {place: time for place, time in missing.items() if place not in found}
        if not missing:
            return found
        for place, error in failures.items():
            if remedy([error.code])[0] is Remedy.GIVE_UP and not error.retriable:
                raise KafkaError(error.code, f"{place.topic}-{place.partition} {error.message}")
        cluster.forget_leaders(missing)
        why = next(iter(failures.values()), None) or _leaderless(missing)
        pause_s = attempts.pause_after(why.code, loop.time())
        if pause_s is None:
            raise why
        await asyncio.sleep(pause_s)


async def ask_leaders(
    cluster: Cluster,
    times: Times,
    found: dict[TopicPartition, int],
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, KafkaError]:
    """Ask every leader once and put what it says into ``found``; the failures, by partition.

    A partition without a leader is in neither. Raises KafkaError when no leader can be found out.
    """
    failures: dict[TopicPartition, KafkaError] = {}
    by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for place, leader in (await cluster.leaders(times)).items():
        by_leader[leader].append(place)

    async def ask(leader: int, places: list[TopicPartition]) -> None:
        try:
            answer = await cluster.ask(leader, _request(times, places, read_committed))
        except KafkaError as error:
            failures.update(dict.fromkeys(places, error))
            return
        for topic in answer.topics:
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    failures[place] = KafkaError(each.error_code)
                else:
                    found[place] = _offset(each)

    await asyncio.gather(*(ask(leader, places) for leader, places in by_leader.items()))
    return failures


def _request(
    times: Times, places: Iterable[TopicPartition], read_committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, list[list_offsets.Partition]] = defaultdict(list)
    for place in places:
        topics[place.topic].append(
            list_offsets.Partition(partition_index=place.partition, timestamp=times[place])
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[list_offsets.Topic(name=name, partitions=each) for name, each in topics.items()],
    )


def _offset(result: list_offsets.PartitionResult) -> int:
    """Brokers before ListOffsets version 1 tell a list."""
    return result.old_style_offsets[0] if result.old_style_offsets else result.offset


def _leaderless(places: Times) -> KafkaError:
    named = ", ".join(f"{topic}-{partition}" for topic, partition in list(places)[:3])
    return KafkaError(known_code(ErrorCode.LEADER_NOT_AVAILABLE), named)
