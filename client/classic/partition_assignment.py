"""Partition assignment of classic groups, range and round-robin: pure functions.

Source: docs/spec/coordinator.md §6.5. Every member computes the whole of it for itself, so nothing
may enter here that two members could see differently: no broker, no leader, no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from barnabas.client.round_robin import next_in_turn
from barnabas.client.topology import TopicPartition
from barnabas.protocol.hashing import java_hash

Partitions = Mapping[str, Collection[int]]
"""The partitions of each topic, in any order."""
Threads = Mapping[str, Collection[str]]
"""The ids of all threads that consume a topic, in any order."""
Owners = dict[TopicPartition, str]
"""The thread of each partition; every partition of a topic with threads is in it."""


def assign_ranges(partitions: Partitions, threads: Threads) -> Owners:
    """Each topic for itself: neighbouring partitions, as many for each; the first get one more.

    Threads sort as text, ``c-10`` before ``c-2``, as Kafka's did; partitions sort as numbers.
    """
    owners: Owners = {}
    sorted_threads: dict[tuple[str, ...], list[str]] = {}
    for topic, numbers in partitions.items():
        consuming = tuple(threads.get(topic, ()))
        if not consuming:
            continue
        # Many topics have the same threads: those of one filter.
        if consuming not in sorted_threads:
            sorted_threads[consuming] = sorted(consuming)
        owners |= _ranges(topic, sorted(numbers), sorted_threads[consuming])
    return owners


def _ranges(topic: str, numbers: list[int], threads: list[str]) -> Owners:
    share, more = divmod(len(numbers), len(threads))
    owners = {}
    for index, thread in enumerate(threads):
        first = share * index + min(index, more)
        for number in numbers[first : first + share + (index < more)]:
            owners[TopicPartition(topic, number)] = thread
    return owners


def assign_round_robin(partitions: Partitions, threads: Threads) -> Owners:
    """All topics together: partitions in the order of their hashes go to the threads in turn.

    A thread that does not consume the partition's topic loses its turn. Hashed is the text
    ``topic-partition`` of Kafka 1.0; that of 0.8.2 to 0.11 was another, so groups must not mix.
    """
    topic_partitions = [
        TopicPartition(topic, number)
        for topic, numbers in partitions.items()
        if threads.get(topic)
        for number in numbers
    ]
    topic_partitions.sort(
        key=lambda topic_partition: (
            java_hash(f"{topic_partition.topic}-{topic_partition.partition}"),
            topic_partition,
        )
    )
    everyone = sorted({thread for of_topic in threads.values() for thread in of_topic})
    index_of = {thread: index for index, thread in enumerate(everyone)}
    consuming = {
        topic: sorted(index_of[thread] for thread in threads[topic])
        for topic in partitions
        if threads.get(topic)
    }
    owners: Owners = {}
    turn = 0
    for topic_partition in topic_partitions:
        index = next_in_turn(consuming[topic_partition.topic], turn)
        owners[topic_partition] = everyone[index]
        turn = index + 1
    return owners


STRATEGIES: Final[Mapping[str, Callable[[Partitions, Threads], Owners]]] = {
    "range": assign_ranges,
    "roundrobin": assign_round_robin,
}
"""By the names that ``partition.assignment.strategy`` may have."""
