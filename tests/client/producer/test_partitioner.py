"""Where records go: Java's hash of the key, its murmur2, or whoever has a leader."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.cluster import TopicPartition
from barnabas.client.producer.partitioner import (
    HashPartitioner,
    Murmur2Partitioner,
    StickyPartitioner,
)
from barnabas.client.topology import Topology
from tests.protocol.golden import document

KEYS = st.one_of(st.binary(), st.text(), st.integers(-(1 << 63), (1 << 63) - 1))


def key_of(vector: dict[str, Any]) -> Any:
    """The key of a golden vector as an application has it."""
    text: str = vector["key"]
    if vector["kind"] == "string":
        return text
    return text.encode() if vector["kind"] == "bytes" else int(text)


@pytest.mark.parametrize("partitions", [4, 10])
def test_the_default_is_the_classic_producers(partitions: int) -> None:
    for vector in document("golden-protocol.json")["classic_partitioner"]:
        expected = vector[f"partition_of_{partitions}"]
        assert HashPartitioner().partition(key_of(vector), partitions) == expected, vector


@given(KEYS, st.integers(1, 1_000))
def test_a_key_has_one_partition_of_those_there_are(key: Any, partitions: int) -> None:
    chosen = HashPartitioner().partition(key, partitions)
    assert 0 <= chosen < partitions
    assert HashPartitioner().partition(key, partitions) == chosen


@given(st.text(), st.integers(1, 1_000))
def test_murmur2_takes_text_as_its_bytes(key: str, partitions: int) -> None:
    partitioner = Murmur2Partitioner()
    chosen = partitioner.partition(key, partitions)
    assert chosen == partitioner.partition(key.encode(), partitions)
    assert 0 <= chosen < partitions


def topology(partitions: int, available_partitions: set[int]) -> Topology:
    made = Topology()
    made.counts["t"] = partitions
    made.leaders.update({TopicPartition("t", number): 1 for number in available_partitions})
    return made


def test_a_record_without_a_key_goes_where_a_leader_is() -> None:
    spread = StickyPartitioner(topology(5, {1, 3}), Random(1))
    seen = set()
    for _ in range(50):
        seen.add(spread.partition("t"))
        spread.on_new_batch("t")
    assert seen == {1, 3}


@pytest.mark.parametrize(
    "available", [{0, 1, 2, 3, 4, 5}, {1, 3, 4}, {2, 39}, {17}], ids=["all", "half", "two", "one"]
)
def test_partitions_with_a_leader_are_equally_likely(available: set[int]) -> None:
    spread = StickyPartitioner(topology(max(available) + 1, available), Random(4))
    seen: Counter[int] = Counter()
    for _ in range(6_000):
        spread.on_new_batch("t")
        seen[spread.partition("t")] += 1
        spread.on_new_batch("t")
    assert set(seen) == available
    expected = 6_000 / len(available)
    assert all(0.85 * expected < count < 1.15 * expected for count in seen.values())


class CountingTopology(Topology):
    """Counts how often the partitions of a topic are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = 0

    def available_partitions(self, topic: str) -> list[int]:
        self.listed += 1
        return super().available_partitions(topic)


def test_a_batch_does_not_look_at_every_partition_of_its_topic() -> None:
    there = CountingTopology()
    there.counts["t"] = 1_000
    there.leaders.update({TopicPartition("t", number): 1 for number in range(0, 1_000, 2)})
    spread = StickyPartitioner(there, Random(5))
    for _ in range(1_000):
        assert spread.partition("t") % 2 == 0
        spread.on_new_batch("t")
        spread.on_new_batch("t")
    assert there.listed < 20  # one in 256


def test_without_any_leader_a_record_waits_for_one_somewhere() -> None:
    assert 0 <= StickyPartitioner(topology(5, set()), Random(1)).partition("t") < 5


def test_records_without_a_key_stay_together_until_their_batch_is_gone() -> None:
    spread = StickyPartitioner(topology(50, set(range(50))), Random(2))
    first = spread.partition("t")
    spread.on_new_batch("t")
    assert {spread.partition("t") for _ in range(20)} == {first}
    spread.on_new_batch("t")
    assert spread.partition("t") != first


def test_a_partition_that_lost_its_leader_is_left() -> None:
    there = topology(2, {0, 1})
    spread = StickyPartitioner(there, Random(3))
    first = spread.partition("t")
    there.forget_leaders([TopicPartition("t", first)])
    assert spread.partition("t") == 1 - first
