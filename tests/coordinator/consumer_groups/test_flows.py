"""What members are told while partitions move.

Source: docs/spec/consumer-groups.md §2, §7; C19 to C21, C61.
"""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from tests.coordinator.consumer_groups.beats import Beats

ALL = {0, 1, 2, 3, 4, 5}


@pytest.fixture
def two(beats: Beats) -> Beats:
    """C66: A had all, and gave half of it to B."""
    assert beats.join("A") == (2, ALL)
    assert beats.shown == ("Stable", 2, 2)
    assert beats.join("B") == (3, set())
    assert beats.beat("A", 2) == (2, {0, 1, 2})
    assert beats.beat("B", 3) == (3, None)
    assert beats.shown == ("Reconciling", 3, 3)
    assert beats.beat("A", 2, [0, 1, 2]) == (3, None)
    assert beats.beat("B", 3) == (3, {3, 4, 5})
    assert beats.beat("B", 3, [3, 4, 5]) == (3, None)
    assert beats.shown == ("Stable", 3, 3)
    return beats


@pytest.fixture
def three(two: Beats) -> Beats:
    """C67: both give one to C."""
    assert two.join("C") == (4, set())
    assert two.beat("A", 3) == (3, {0, 1})
    assert two.beat("A", 3, [0, 1]) == (4, None)
    assert two.beat("B", 3) == (3, {3, 4})
    assert two.beat("C", 4) == (4, {2})
    assert two.shown == ("Reconciling", 4, 4)
    assert two.beat("B", 3, [3, 4]) == (4, None)
    assert two.beat("C", 4) == (4, {2, 5})
    assert two.beat("C", 4, [2, 5]) == (4, None)
    assert two.shown == ("Stable", 4, 4)
    return two


def test_a_member_that_leaves_is_replaced_with_the_next_heartbeats(three: Beats) -> None:
    """C68."""
    assert three.beat("B", -1) == (-1, None)
    assert three.shown == ("Assigning", 5, 4)
    assert three.beat("A", 4) == (5, {0, 1, 3})
    assert three.beat("C", 4) == (5, {2, 4, 5})
    assert three.shown == ("Stable", 5, 5)
    assert three.refused("B", 4) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_crashed_goes_with_its_session(three: Beats) -> None:
    """C69."""
    three.beat("B", -1)
    assert three.beat("A", 4) == (5, {0, 1, 3})
    assert three.beat("C", 4) == (5, {2, 4, 5})
    three.harness.wait(44)
    assert three.beat("A", 5, [0, 1, 3]) == (5, None)
    three.harness.wait(2)
    assert three.shown == ("Assigning", 6, 5)
    assert three.beat("A", 5) == (6, ALL)
    assert three.refused("C", 5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert three.shown == ("Stable", 6, 6)


def test_a_member_that_does_not_give_up_in_time_is_fenced(beats: Beats) -> None:
    """C70."""
    beats.join("A", rebalance_timeout_ms=20_000)
    beats.join("B")
    assert beats.beat("A", 2) == (2, {0, 1, 2})
    for _ in range(2):
        beats.harness.wait(9.9)
        assert beats.beat("A", 2)[0] == 2
        assert beats.beat("B", 3) == (3, None)
    beats.harness.wait(1)
    assert beats.shown == ("Assigning", 4, 3)
    assert beats.beat("B", 3) == (4, ALL)
    assert beats.refused("A", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beats.join("A") == (5, set())
    assert beats.beat("B", 4) == (4, {0, 1, 2})
    assert beats.beat("B", 4, [0, 1, 2]) == (5, None)
    assert beats.beat("A", 5) == (5, {3, 4, 5})
    assert beats.shown == ("Stable", 5, 5)


def test_an_answer_that_was_lost_is_given_again(beats: Beats) -> None:
    """C71: an epoch of before is fine where the member says what it has."""
    beats.join("A")
    beats.join("B")
    beats.beat("A", 2)
    assert beats.beat("A", 2, [0, 1, 2]) == (3, None)
    assert beats.beat("A", 2, [0, 1, 2]) == (3, None)
    assert beats.refused("A", 2) is ErrorCode.FENCED_MEMBER_EPOCH


def test_three_that_join_at_once_end_with_a_third_each(beats: Beats) -> None:
    """C72."""
    assert beats.join("A") == (2, ALL)
    assert beats.join("B") == (3, set())
    assert beats.join("C") == (4, set())
    assert beats.beat("A", 2, ALL) == (2, {0, 1})
    assert beats.beat("A", 2, [0, 1]) == (4, None)
    assert beats.beat("B", 3) == (4, {3, 4})
    assert beats.beat("C", 4) == (4, {2, 5})
    assert beats.shown == ("Stable", 4, 4)


def test_a_member_that_comes_again_has_what_it_had(two: Beats) -> None:
    """C73."""
    assert two.join("A") == (3, {0, 1, 2})
    assert two.shown == ("Stable", 3, 3)


def test_a_target_waits_for_the_assignment_interval(slow_beats: Beats) -> None:
    """C74, C26: nobody has to send a heartbeat for it to be computed."""
    assert slow_beats.join("A") == (2, ALL)
    slow_beats.harness.wait(0.05)
    assert slow_beats.join("B") == (2, set())
    assert slow_beats.shown == ("Assigning", 3, 2)
    slow_beats.harness.wait(0.9)
    assert slow_beats.shown == ("Assigning", 3, 2)
    slow_beats.harness.wait(0.1)
    assert slow_beats.shown == ("Reconciling", 3, 3)


def test_an_expression_is_resolved_beside_the_heartbeat(beats: Beats) -> None:
    """C75."""
    assert beats.join("A", None, subscribed_topic_regex="t.*") == (1, set())
    assert beats.shown == ("Assigning", 2, 1)
    assert beats.beat("A", 1) == (2, ALL)
    assert beats.shown == ("Stable", 2, 2)


def test_a_static_member_that_restarts_costs_nobody_anything(two: Beats) -> None:
    """C76."""
    two.beat("B", -1)
    assert two.beat("A", 3) == (4, ALL)
    assert two.join("S", instance_id="i1") == (5, set())
    assert two.beat("A", 4) == (4, {0, 1, 2})
    assert two.beat("A", 4, [0, 1, 2]) == (5, None)
    assert two.beat("S", 5, instance_id="i1") == (5, {3, 4, 5})
    assert two.shown == ("Stable", 5, 5)
    assert (
        two.send(
            "S2", 0, (), instance_id="i1", subscribed_topic_names=["t"], rebalance_timeout_ms=1
        ).code
        is ErrorCode.UNRELEASED_INSTANCE_ID
    )
    assert two.beat("S", -2, instance_id="i1") == (-2, None)
    assert two.shown == ("Reconciling", 5, 5)
    assert two.join("S2", instance_id="i1") == (5, {3, 4, 5})
    assert two.shown == ("Stable", 5, 5)
    assert two.beat("A", 5) == (5, None)
    assert two.refused("S", 5) is ErrorCode.UNKNOWN_MEMBER_ID
    assert two.refused("S", 5, instance_id="i1") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_stays_away_goes_with_its_session(two: Beats) -> None:
    """C22, C76."""
    two.join("S", instance_id="i1")
    two.beat("S", -2, instance_id="i1")
    epoch = two.group.epoch
    for _ in range(5):
        two.harness.wait(9.9)
        two.beat("A", two.group.consumers["A"].epoch)
        two.beat("B", two.group.consumers["B"].epoch)
    assert "S" not in two.group.consumers
    assert two.group.epoch == epoch + 1


@pytest.mark.parametrize("is_given_up", [True, False], ids=["given up", "not given up"])
def test_another_coordinator_goes_on_where_the_last_one_stood(
    beats: Beats, is_given_up: bool
) -> None:
    """C77."""
    beats.join("A")
    beats.join("B")
    assert beats.beat("A", 2) == (2, {0, 1, 2})
    if is_given_up:
        assert beats.beat("A", 2, [0, 1, 2]) == (3, None)
    before = beats.shown
    beats.harness.reload()
    assert beats.shown == before
    assert beats.beat("A", 2, [0, 1, 2])[0] == 3
    assert beats.beat("B", 3) == (3, {3, 4, 5})
    assert beats.shown == ("Stable", 3, 3)


def test_a_static_member_comes_back_to_another_coordinator(two: Beats) -> None:
    """C77: its session begins anew there."""
    two.join("S", instance_id="i1")
    two.beat("S", -2, instance_id="i1")
    two.harness.wait(40)
    two.harness.reload()
    two.harness.wait(40)
    assert two.join("S2", instance_id="i1")[0] == two.group.epoch


def test_partitions_that_are_added_are_given_out(two: Beats) -> None:
    """C78."""
    two.harness.catalog.change("t", 8)
    assert two.beat("A", 3) == (4, {0, 1, 2, 6})
    assert two.beat("B", 3) == (4, {3, 4, 5, 7})
    assert two.shown == ("Stable", 4, 4)


def test_a_member_that_unsubscribes_gives_up_first(two: Beats) -> None:
    """C79."""
    assert two.beat("A", 3, subscribed_topic_names=[]) == (3, set())
    assert two.beat("B", 3) == (4, None)
    assert two.beat("A", 3, []) == (4, None)
    assert two.beat("B", 4) == (4, ALL)
    assert two.shown == ("Stable", 4, 4)


def test_a_member_that_unsubscribes_gives_up_before_there_is_a_target(slow_beats: Beats) -> None:
    """C79: what it has left it need not wait for."""
    slow_beats.join("A")
    slow_beats.join("B")
    slow_beats.harness.wait(1)
    slow_beats.beat("A", 2)
    slow_beats.beat("A", 2, [0, 1, 2])
    assert slow_beats.beat("B", 2) == (3, {3, 4, 5})
    assert slow_beats.shown == ("Stable", 3, 3)
    slow_beats.harness.wait(1)
    assert slow_beats.join("C", ("u",))[0] == 4  # computed at once, and the next one is not
    slow_beats.beat("A", 3)
    slow_beats.beat("B", 3)
    assert slow_beats.beat("A", 4, subscribed_topic_names=[]) == (4, set())
    assert slow_beats.shown == ("Assigning", 5, 4)
    assert slow_beats.beat("A", 4, []) == (4, None)
    assert slow_beats.group.consumers["A"].current.revoking == {}


def test_who_is_ahead_of_the_log_has_to_come_again(two: Beats) -> None:
    """C80."""
    assert two.refused("A", 5) is ErrorCode.FENCED_MEMBER_EPOCH
    assert two.join("A") == (3, {0, 1, 2})
