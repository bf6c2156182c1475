"""The rules of elections and of state machines, without a cluster."""

from __future__ import annotations

import pytest

from barnabas.broker.controller.leader_election import (
    ElectionResult,
    elect_for_controlled_shutdown,
    elect_for_new_partition,
    elect_for_offline_partition,
    elect_preferred_replica,
    without_replica,
)
from barnabas.broker.controller.state_transitions import (
    PARTITION_TRANSITIONS,
    REPLICA_TRANSITIONS,
    PartitionStatus,
    ReplicaStatus,
    valid_transitions,
)


def test_a_new_partition_is_led_by_its_first_live_replica_with_all_live_ones_in_sync() -> None:
    assert elect_for_new_partition((3, 1, 2), {1, 2}) == ElectionResult(1, (1, 2))
    assert elect_for_new_partition((3,), {1}) is None


def test_an_offline_partition_is_led_in_the_order_of_assignment_not_of_the_in_sync_set() -> None:
    chosen = elect_for_offline_partition((1, 2, 3), (3, 2), {2, 3}, may_be_unclean=False)
    assert chosen == ElectionResult(2, (3, 2))


def test_outside_the_in_sync_set_leads_nobody_unless_losing_is_allowed() -> None:
    assert elect_for_offline_partition((1, 2), (1,), {2}, may_be_unclean=False) is None
    unclean = elect_for_offline_partition((1, 2), (1,), {2}, may_be_unclean=True)
    assert unclean == ElectionResult(2, (2,), is_unclean=True)


def test_only_the_first_replica_is_preferred_and_only_in_sync() -> None:
    assert elect_preferred_replica((1, 2), (2, 1), {1, 2}) == ElectionResult(1, (2, 1))
    assert elect_preferred_replica((1, 2), (2,), {1, 2}) is None
    assert elect_preferred_replica((1, 2), (1, 2), {2}) is None


def test_a_node_that_stops_leaves_the_in_sync_set_as_it_hands_over() -> None:
    assert elect_for_controlled_shutdown((1, 2), (1, 2), {1, 2}, {1}) == ElectionResult(2, (2,))
    assert elect_for_controlled_shutdown((1, 2), (1,), {1, 2}, {1}) is None


def test_the_last_replica_in_sync_keeps_its_name_on_the_list() -> None:
    assert without_replica(1, (1, 2), 1) == ElectionResult(-1, (2,))
    assert without_replica(1, (1, 2), 2) == ElectionResult(1, (1,))
    assert without_replica(1, (1,), 1) == ElectionResult(-1, (1,))


@pytest.mark.parametrize("moves", [PARTITION_TRANSITIONS, REPLICA_TRANSITIONS])
def test_every_status_has_a_row_and_can_be_reached(moves: dict[object, frozenset[object]]) -> None:
    statuses = set(type(next(iter(moves))))  # type: ignore[call-overload]
    assert set(moves) == statuses
    assert set().union(*moves.values()) == statuses


def test_a_move_that_is_not_in_the_table_is_skipped() -> None:
    current = {("t", 0): PartitionStatus.ONLINE, ("t", 1): PartitionStatus.OFFLINE}
    gone = PartitionStatus.NON_EXISTENT
    assert valid_transitions(
        [("t", 0), ("t", 1), ("t", 2)], gone, current, PARTITION_TRANSITIONS
    ) == [("t", 1)]
    replicas = {("t", 0, 1): ReplicaStatus.OFFLINE}
    started = ReplicaStatus.DELETION_STARTED
    assert valid_transitions(replicas, started, replicas, REPLICA_TRANSITIONS) == [("t", 0, 1)]
