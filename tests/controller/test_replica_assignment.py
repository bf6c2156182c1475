"""Where replicas are placed: the vectors of docs/spec/cluster.md §2.10, and what always holds."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.controller.replica_assignment import (
    Assignment,
    CandidateNode,
    assign,
    assign_added,
    assign_new,
    candidates_for,
)
from barnabas.protocol.names import INTERNAL_TOPICS


def nodes(*ids: int) -> list[CandidateNode]:
    return [CandidateNode(node) for node in ids]


def test_ten_partitions_of_three_replicas_on_five_nodes() -> None:
    placed = assign(nodes(0, 1, 2, 3, 4), partitions=10, factor=3, start=0, shift=0)
    assert placed == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_six_partitions_of_two_replicas_on_three_nodes() -> None:
    placed = assign(nodes(1, 2, 3), partitions=6, factor=2, start=0, shift=0)
    assert placed == {0: (1, 2), 1: (2, 3), 2: (3, 1), 3: (1, 3), 4: (2, 1), 5: (3, 2)}


def test_added_partitions_go_on_where_the_first_ones_ended() -> None:
    placed = assign(nodes(1, 2, 3), partitions=3, factor=2, start=1, shift=1, first=3)
    assert placed == {3: (2, 3), 4: (3, 1), 5: (1, 2)}
    existing: Assignment = {0: (2, 3), 1: (3, 1), 2: (1, 2)}
    assert assign_added(nodes(1, 2, 3), existing=existing, partitions=3) == placed


def test_racks_take_turns() -> None:
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    racked = [CandidateNode(node, rack) for node, rack in racks.items()]
    placed = assign(racked, partitions=6, factor=1, start=0, shift=0)
    assert [replicas[0] for replicas in placed.values()] == [0, 3, 1, 5, 4, 2]


def test_a_node_without_rack_makes_racks_be_ignored() -> None:
    mixed = [CandidateNode(0, "r1"), CandidateNode(1), CandidateNode(2, "r1")]
    placed = assign(mixed, partitions=3, factor=2, start=0, shift=0)
    assert placed == assign(nodes(0, 1, 2), partitions=3, factor=2, start=0, shift=0)


def test_internal_topics_go_to_coordinators_and_others_to_brokers() -> None:
    cluster = [
        CandidateNode(3, roles=frozenset(("broker",))),
        CandidateNode(2, roles=frozenset(("coordinator",))),
        CandidateNode(1, roles=frozenset(("broker", "coordinator"))),
    ]
    assert [node.id for node in candidates_for("orders", cluster)] == [1, 3]
    for topic in INTERNAL_TOPICS:
        assert [node.id for node in candidates_for(topic, cluster)] == [1, 2]


def test_more_replicas_than_nodes_are_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError):
        assign(nodes(1), partitions=1, factor=2, start=0, shift=0)


@st.composite
def clusters(draw: st.DrawFn) -> list[CandidateNode]:
    ids = draw(st.lists(st.integers(0, 2000), min_size=1, max_size=9, unique=True))
    has_racks = draw(st.booleans())
    racks = [draw(st.sampled_from(["a", "b", "c"])) if has_racks else None for _ in ids]
    return [CandidateNode(node, rack) for node, rack in zip(ids, racks, strict=True)]


@given(clusters(), st.integers(1, 40), st.integers(0, 2**32), st.data())
def test_replicas_are_distinct_and_spread_evenly(
    cluster: list[CandidateNode], partitions: int, seed: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(cluster)))
    placed = assign_new(cluster, partitions=partitions, factor=factor, rng=random.Random(seed))
    ids = {node.id for node in cluster}
    rack_of = {node.id: node.rack for node in cluster}
    assert sorted(placed) == list(range(partitions))
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= ids
        used = {rack_of[node] for node in replicas}
        assert len(used) == min(factor, len(set(rack_of.values())))
    leaders = Counter(replicas[0] for replicas in placed.values())
    assert max(leaders.values()) - min(leaders.get(node, 0) for node in ids) <= 1


@given(clusters(), st.integers(1, 20), st.integers(1, 20), st.integers(0, 2**32))
def test_added_partitions_keep_the_factor_and_the_numbers(
    cluster: list[CandidateNode], before: int, added: int, seed: int
) -> None:
    factor = min(2, len(cluster))
    existing = assign_new(cluster, partitions=before, factor=factor, rng=random.Random(seed))
    grown = assign_added(cluster, existing=existing, partitions=added)
    assert sorted(grown) == list(range(before, before + added))
    assert {len(replicas) for replicas in grown.values()} == {factor}
