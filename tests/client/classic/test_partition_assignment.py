"""The assignment of a classic group: Kafka's vectors, and what holds for any group.

Source: docs/spec/coordinator.md §6.5 and §6.12 check C6.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.classic.partition_assignment import STRATEGIES, assign_ranges
from barnabas.client.cluster import TopicPartition
from barnabas.protocol.hashing import java_hash
from tests.protocol.golden import document

GOLDEN = document("golden-protocol.json")["classic_assignment"]


def _named(case: Mapping[str, Any]) -> str:
    return f"{case['strategy']}-{case['name']}"


@pytest.mark.parametrize(
    "case", [vector for vector in GOLDEN if vector["strategy"] == "range"], ids=_named
)
def test_ranges_are_those_that_kafka_computes(case: Mapping[str, Any]) -> None:
    topic = case["topic"]
    owners = assign_ranges({topic: case["partitions"][::-1]}, {topic: case["threads_sorted"][::-1]})
    expected = {
        TopicPartition(topic, number): thread
        for thread, numbers in case["assignment"].items()
        for number in numbers
    }
    assert owners == expected


@pytest.mark.parametrize(
    "case", [vector for vector in GOLDEN if vector.get("era", "").startswith("1.0")], ids=_named
)
def test_turns_are_those_that_kafka_computes(case: Mapping[str, Any]) -> None:
    owners = STRATEGIES["roundrobin"](case["partitions"], case["consumers_for_topic"])
    expected = {
        TopicPartition(topic, number): thread
        for thread, topic_partitions in case["assignment"].items()
        for topic, number in topic_partitions
    }
    assert owners == expected


TOPICS = st.sampled_from(["orders", "payments", "a.b", "t-1"])
GROUPS = st.dictionaries(
    st.integers(0, 12).map(lambda number: f"g_host-{number}"),
    st.dictionaries(TOPICS, st.integers(1, 12), min_size=1),
    max_size=6,
)
PARTITIONS = st.dictionaries(TOPICS, st.integers(0, 14).map(range))


def threads_of(group: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    threads: dict[str, list[str]] = {}
    for consumer, counts in group.items():
        for topic, count in counts.items():
            threads.setdefault(topic, []).extend(f"{consumer}-{n}" for n in range(count))
    return threads


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(group=GROUPS, partitions=PARTITIONS)
def test_every_partition_has_exactly_one_owner_who_asked_for_its_topic(
    strategy: str, group: Mapping[str, Mapping[str, int]], partitions: Mapping[str, Sequence[int]]
) -> None:
    threads = threads_of(group)
    owners = STRATEGIES[strategy](partitions, threads)
    assert set(owners) == {
        TopicPartition(topic, number)
        for topic, numbers in partitions.items()
        if threads.get(topic)
        for number in numbers
    }
    assert all(
        thread in threads[topic_partition.topic] for topic_partition, thread in owners.items()
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(group=GROUPS, partitions=PARTITIONS, order=st.randoms(use_true_random=False))
def test_members_that_read_the_group_in_another_order_compute_the_same_owners(
    strategy: str,
    group: Mapping[str, Mapping[str, int]],
    partitions: Mapping[str, Sequence[int]],
    order: Any,
) -> None:
    def shuffled(items: Any) -> list[Any]:
        drawn: list[Any] = order.sample(list(items), len(items))
        return drawn

    others = {topic: shuffled(numbers) for topic, numbers in shuffled(partitions.items())}
    members = {topic: shuffled(ids) for topic, ids in shuffled(threads_of(group).items())}
    assert STRATEGIES[strategy](others, members) == STRATEGIES[strategy](
        partitions, threads_of(group)
    )


@given(group=GROUPS, partitions=PARTITIONS)
def test_turns_go_around_and_leave_out_threads_that_do_not_consume_the_topic(
    group: Mapping[str, Mapping[str, int]], partitions: Mapping[str, Sequence[int]]
) -> None:
    threads = threads_of(group)
    topic_partitions = [
        TopicPartition(topic, number)
        for topic, numbers in partitions.items()
        if threads.get(topic)
        for number in numbers
    ]
    topic_partitions.sort(key=lambda one: (java_hash(f"{one.topic}-{one.partition}"), one))
    turns = cycle(sorted({thread for of_topic in threads.values() for thread in of_topic}))
    assert STRATEGIES["roundrobin"](partitions, threads) == {
        one: next(thread for thread in turns if thread in threads[one.topic])
        for one in topic_partitions
    }


@given(group=GROUPS, partitions=PARTITIONS)
def test_ranges_differ_by_one_partition_at_most(
    group: Mapping[str, Mapping[str, int]], partitions: Mapping[str, Sequence[int]]
) -> None:
    threads = threads_of(group)
    for topic, numbers in partitions.items():
        owners = assign_ranges({topic: numbers}, threads)
        shares = Counter(dict.fromkeys(threads.get(topic, ()), 0))
        shares.update(owners.values())
        assert max(shares.values(), default=0) - min(shares.values(), default=0) <= 1
