"""ListOffsets of many partitions: one request to each leader, retried where one moved.

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
        missing = {
            topic_partition: time
            for topic_partition, time in missing.items()
            if topic_partition not in found
        }
        if not missing:
            return found
        for topic_partition, error in failures.items():
            if remedy([error.code])[0] is Remedy.GIVE_UP and not error.retriable:
                raise KafkaError(
                    error.code,
                    f"{topic_partition.topic}-{topic_partition.partition} {error.message}",
                )
        cluster.forget_leaders(missing)
        why = next(iter(failures.values()), None) or _leaderless(missing)
        pause_s = attempts.backoff_after(why.code, loop.time())
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
    for topic_partition, leader in (await cluster.leaders(times)).items():
        by_leader[leader].append(topic_partition)

    async def ask(leader: int, topic_partitions: list[TopicPartition]) -> None:
        try:
            answer = await cluster.ask(leader, _request(times, topic_partitions, read_committed))
        except KafkaError as error:
            failures.update(dict.fromkeys(topic_partitions, error))
            return
        for topic in answer.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                if partition.error_code:
                    failures[topic_partition] = KafkaError(partition.error_code)
                else:
                    found[topic_partition] = _offset(partition)

    await asyncio.gather(
        *(ask(leader, topic_partitions) for leader, topic_partitions in by_leader.items())
    )
    return failures


def _request(
    times: Times, topic_partitions: Iterable[TopicPartition], read_committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, list[list_offsets.Partition]] = defaultdict(list)
    for topic_partition in topic_partitions:
        topics[topic_partition.topic].append(
            list_offsets.Partition(
                partition_index=topic_partition.partition, timestamp=times[topic_partition]
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[
            list_offsets.Topic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _offset(result: list_offsets.PartitionResult) -> int:
    """Brokers before ListOffsets version 1 tell a list."""
    return result.old_style_offsets[0] if result.old_style_offsets else result.offset


def _leaderless(topic_partitions: Times) -> KafkaError:
    named = ", ".join(f"{topic}-{partition}" for topic, partition in list(topic_partitions)[:3])
    return KafkaError(known_code(ErrorCode.LEADER_NOT_AVAILABLE), named)
