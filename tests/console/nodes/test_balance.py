"""Who leads instead of a node, and what its share is (docs/spec/console.md §7)."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.cluster import TopicPartition
from barnabas.console.nodes.balance import NodeFacts, drained, filled, with_copies, without
from barnabas.console.partitions.leadership import in_safe_order
from barnabas.console.partitions.placements import OFFSETS, TRANSACTIONS, Placement

UP = (1, 2, 3, 4)


def one(
    topic: str, partition: int, leader: int | None, *replicas: int, out: tuple[int, ...] = ()
) -> Placement:
    in_sync = frozenset(replicas) - frozenset(out)
    return Placement(TopicPartition(topic, partition), leader, replicas, in_sync)


@st.composite
def clusters(draw: st.DrawFn) -> list[Placement]:
    """Partitions of three topics on four nodes, each with one to four copies."""
    found = []
    for topic in ("orders", TRANSACTIONS, OFFSETS):
        for partition in range(draw(st.integers(0, 12))):
            replicas = tuple(draw(st.permutations(UP))[: draw(st.integers(1, 4))])
            in_sync = frozenset(draw(st.sets(st.sampled_from(replicas), min_size=1)))
            leader = draw(st.sampled_from(sorted(in_sync)))
            found.append(Placement(TopicPartition(topic, partition), leader, replicas, in_sync))
    return found


@given(clusters())
def test_a_drained_node_leads_nothing_that_another_in_sync_copy_can_lead(
    cluster: list[Placement],
) -> None:
    plan = drained(cluster, 1, UP, {})
    known = {found.place: found for found in cluster}
    for move in plan.moves:
        assert move.leader != 1
        assert move.leader in known[move.place].in_sync
        assert sorted(move.replicas) == sorted(known[move.place].replicas)
        assert move.replicas[0] == move.leader
        assert move.replicas[-1] == 1
    for place in plan.refused:
        assert known[place].in_sync == {1}
        assert known[place].leader == 1
    left = {move.place for move in plan.moves} | plan.refused.keys()
    assert all(found.leader != 1 and found.preferred != 1 for found in cluster
               if found.place not in left)  # fmt: skip


def test_leaderships_are_spread_over_those_who_lead_least() -> None:
    cluster = [one("orders", number, 1, 1, 2, 3, 4) for number in range(9)]
    cluster += [one("bills", number, 2, 2, 3, 4) for number in range(3)]
    plan = drained(cluster, 1, UP, {})
    assert Counter(move.leader for move in plan.moves) == {2: 1, 3: 4, 4: 4}


def test_an_offsets_partition_goes_to_a_standby_that_has_little_to_apply() -> None:
    cluster = [one(OFFSETS, 0, 1, 1, 2, 3), one(OFFSETS, 1, 3, 3, 1)]
    assert [move.leader for move in drained(cluster, 1, UP, {}).moves] == [2]
    assert [move.leader for move in drained(cluster, 1, UP, {(2, 0): 5000}).moves] == [3]


def test_groups_move_last_and_transactions_before_them() -> None:
    cluster = [one(OFFSETS, 0, 1, 1, 2), one(TRANSACTIONS, 0, 1, 1, 2), one("a", 0, 1, 1, 2)]
    moves = in_safe_order(drained(cluster, 1, UP, {}).moves)
    assert [move.place.topic for move in moves] == ["a", TRANSACTIONS, OFFSETS]


def test_what_cannot_be_drained_is_said_with_its_reason() -> None:
    cluster = [one("alone", 0, 1, 1), one("late", 0, 1, 1, 2, out=(2,)), one("dead", 0, None, 1, 2)]
    refused = drained(cluster, 1, UP, {}).refused
    assert "its only copy" in refused[TopicPartition("alone", 0)]
    assert "no other copy is in sync" in refused[TopicPartition("late", 0)]
    assert "has no leader now" in refused[TopicPartition("dead", 0)]


@given(clusters())
def test_a_filled_node_leads_its_share_where_its_copies_allow_it(cluster: list[Placement]) -> None:
    moves = filled(cluster, 1, UP)
    known = {found.place: found for found in cluster}
    assert all(1 in known[move.place].in_sync and move.leader == 1 for move in moves)
    for topic in ("orders", TRANSACTIONS, OFFSETS):
        of_topic = [found for found in cluster if found.place.topic == topic]
        first = sum(found.preferred == 1 for found in of_topic)
        new = sum(move.place.topic == topic and known[move.place].preferred != 1 for move in moves)
        assert first + new <= max(first, len(of_topic) // len(UP))


def test_a_node_that_comes_back_is_filled_as_full_as_the_others() -> None:
    cluster = [one("orders", number, 2 + number % 3, 2 + number % 3, 1) for number in range(12)]
    moves = filled(cluster, 1, UP)
    assert len(moves) == 3
    assert Counter(move.before.leader for move in moves) == {2: 1, 3: 1, 4: 1}


@given(clusters())
def test_copies_that_go_have_as_many_replicas_elsewhere(cluster: list[Placement]) -> None:
    wanted, refused = without(cluster, 1, [NodeFacts(node) for node in (2, 3, 4)])
    for found in cluster:
        if 1 not in found.replicas:
            assert found.place not in wanted
            assert found.place not in refused
        elif len(found.replicas) == len(UP):
            assert found.place in refused
        else:
            new = wanted[found.place]
            assert 1 not in new
            assert len(set(new)) == len(new) == len(found.replicas)
            assert set(found.replicas) - {1} <= set(new)


def test_a_copy_goes_into_a_rack_that_has_none_to_a_node_of_the_right_role() -> None:
    cluster = [one("orders", 0, 2, 2, 1), one(OFFSETS, 0, 2, 2, 1)]
    facts = [
        NodeFacts(2, "a"),
        NodeFacts(3, "a"),
        NodeFacts(4, "b", frozenset({"broker"})),
        NodeFacts(5, "c", frozenset({"coordinator"})),
    ]
    wanted, refused = without(cluster, 1, facts)
    assert wanted == {TopicPartition("orders", 0): (2, 4), TopicPartition(OFFSETS, 0): (2, 5)}
    assert refused == {}


def test_a_new_node_is_given_its_share_of_copies_from_those_who_have_most() -> None:
    cluster = [one("orders", number, 1, 1, 2) for number in range(8)]
    wanted = with_copies(cluster, NodeFacts(4), (1, 2, 3, 4))
    assert len(wanted) == 4
    assert all(4 in replicas and replicas[0] == 1 for replicas in wanted.values())
    assert with_copies(cluster, NodeFacts(4, roles=frozenset({"coordinator"})), UP) == {}
