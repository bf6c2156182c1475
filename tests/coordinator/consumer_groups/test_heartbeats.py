"""Whom a heartbeat is refused, and what it changes. Source: docs/spec/consumer-groups.md §1, §2."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.consumer_groups.member import ConsumerMember
from barnabas.coordinator.consumer_groups.target_assignment import changed_members
from barnabas.coordinator.cooperative import STEPS_PER_TURN
from barnabas.coordinator.ports import Caller
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.consumer_groups.beats import Beats, assigned
from tests.coordinator.coordinator_harness import Make

ALL = {0, 1, 2, 3, 4, 5}
JOIN: dict[str, Any] = {"rebalance_timeout_ms": 1000, "subscribed_topic_names": ["t"]}
INVALID = ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("member", "epoch", "owned", "fields"),
    [
        ("", 0, (), JOIN),
        (" ", 0, (), JOIN),
        ("", 1, None, {"version": 0}),
        ("", -1, None, {"version": 0}),
        ("A", 0, (), {**JOIN, "group_id": " "}),
        ("A", 0, (), {**JOIN, "instance_id": ""}),
        ("A", 0, (), {**JOIN, "rack_id": " \t"}),
        ("A", 0, (), {"subscribed_topic_names": ["t"]}),
        ("A", 0, None, JOIN),
        ("A", 0, [1], JOIN),
        ("A", 0, (), {"rebalance_timeout_ms": 1000}),
        ("A", -2, None, {}),
        ("A", -3, None, {"instance_id": "i"}),
    ],
)
def test_what_makes_no_sense_is_refused(
    beats: Beats, member: str, epoch: int, owned: Any, fields: Any
) -> None:
    """C8, C88."""
    asked = beats.send(member, epoch, owned, **fields)
    assert asked.code is INVALID
    assert asked.answer.error_message
    assert (asked.answer.member_id, asked.answer.member_epoch) == (None, 0)
    assert not beats.harness.coordinator.registry.groups


def test_names_and_expressions_may_be_empty(beats: Beats) -> None:
    """C8, C15."""
    assert beats.join("A", ()) == (1, set())
    assert beats.join("B", None, subscribed_topic_regex="") == (1, set())
    assert beats.shown == ("Stable", 1, 1)


def test_an_assignor_that_is_not_configured_is_refused(beats: Beats) -> None:
    assert beats.refused("A", 0, (), server_assignor="sticky", **JOIN) is (
        ErrorCode.UNSUPPORTED_ASSIGNOR
    )


@pytest.mark.parametrize("regex", ["(", "a++", "(?=t)", "a{1001}"])
def test_an_expression_that_cannot_be_read_is_refused(beats: Beats, regex: str) -> None:
    """C40."""
    code = beats.refused("A", 0, (), rebalance_timeout_ms=1, subscribed_topic_regex=regex)
    assert code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not beats.harness.coordinator.registry.groups


def test_before_version_1_the_coordinator_makes_the_id(beats: Beats) -> None:
    """C9."""
    asked = beats.send("", 0, (), version=0, **JOIN)
    member_id = asked.answer.member_id
    assert len(member_id) == 36
    assert assigned(asked) == ALL
    assert asked.answer.heartbeat_interval_ms == 5000
    assert beats.beat(member_id, 2, version=0)[0] == 2


def test_a_group_that_is_not_there_is_made_by_who_joins(beats: Beats) -> None:
    """Kafka answers 69 to the first, which ends its clients."""
    assert beats.refused("A", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beats.refused("A", -1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert beats.refused("A", -2, instance_id="i") is ErrorCode.GROUP_ID_NOT_FOUND
    beats.join("A")
    assert beats.shown == ("Stable", 2, 2)


def test_a_full_group_takes_nobody_but_who_is_in_it(make_harness: Make) -> None:
    """C96."""
    beats = Beats(make_harness(consumer_assignment_interval_ms=0, consumer_members_max=2))
    beats.join("A")
    beats.join("S", instance_id="i")
    assert beats.refused("B", 0, (), **JOIN) is ErrorCode.GROUP_MAX_SIZE_REACHED
    beats.beat("S", -2, instance_id="i")
    assert beats.join("S2", instance_id="i")[0] == 3
    assert beats.join("A") == (3, {0, 1, 2})


def test_who_is_not_a_member_is_told_so(beats: Beats) -> None:
    beats.join("A")
    assert beats.refused("B", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beats.refused("B", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert beats.refused("A", 2, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert beats.refused("A", 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert beats.refused("A", 3) is ErrorCode.FENCED_MEMBER_EPOCH
    assert beats.beat("A", 2) == (2, ALL)


def test_the_same_heartbeat_twice_changes_nothing(beats: Beats) -> None:
    """C89: in any state."""
    full = {"rebalance_timeout_ms": 300_000, "subscribed_topic_names": ["t"]}
    log = beats.harness.log
    beats.join("A")
    beats.join("B")
    for member, epoch, owned in (("A", 2, ALL), ("B", 3, []), ("A", 2, {0, 1, 2}), ("B", 3, [])):
        first = beats.beat(member, epoch, owned, **full)
        ends = [log.partition(index).end for index in range(4)]
        assert beats.beat(member, epoch, owned, **full)[1] == first[1]
        assert [log.partition(index).end for index in range(4)] == ends


def test_a_member_whose_answer_was_lost_is_told_again(beats: Beats) -> None:
    """C13: the next heartbeat may say nothing, and Kafka would never repeat the assignment."""
    beats.join("A")
    assert beats.beat("A", 2) == (2, ALL)
    assert beats.beat("A", 2, ALL) == (2, None)
    assert beats.beat("A", 2) == (2, None)


def test_a_full_heartbeat_is_answered_in_full(beats: Beats) -> None:
    beats.join("A")
    beats.beat("A", 2, ALL)
    assert beats.beat("A", 2, ALL, **JOIN) == (2, ALL)


def test_null_means_as_last_time(beats: Beats) -> None:
    beats.join("A", rack_id="r1", server_assignor="range")
    beats.beat("A", 2)
    profile = beats.group.consumers["A"].profile
    assert (profile.rack_id, profile.assignor, profile.names) == ("r1", "range", frozenset("t"))
    assert (profile.rebalance_timeout_ms, profile.client_host) == (300_000, "/10.0.0.7")


def test_another_address_is_noted_and_moves_nothing(beats: Beats) -> None:
    """Nor do timeout and rack."""
    beats.join("A")
    caller = Caller(client_id="app2", host="10.0.0.8")
    beats.beat("A", 2, caller=caller, rack_id="r2", rebalance_timeout_ms=7)
    assert beats.group.consumers["A"].profile.client_host == "/10.0.0.8"
    assert beats.shown == ("Stable", 2, 2)
    beats.harness.reload()
    profile = beats.group.consumers["A"].profile
    assert (profile.client_id, profile.rack_id, profile.rebalance_timeout_ms) == ("app2", "r2", 7)


def test_another_assignor_moves_partitions(beats: Beats) -> None:
    """KAFKA-20434."""
    beats.join("A")
    beats.beat("A", 2, server_assignor="range")
    assert beats.shown == ("Stable", 3, 3)


def test_a_member_may_change_its_instance_id(beats: Beats) -> None:
    """C90: the one before is free."""
    beats.join("S", instance_id="i1")
    beats.join("S", instance_id="i2")
    assert beats.group.static_consumers == {"i2": "S"}
    assert beats.join("T", instance_id="i1")[0] == 3


def test_a_fenced_static_member_may_join_again_under_its_own_id(beats: Beats) -> None:
    """In Kafka it is told 111, for good."""
    beats.join("S", instance_id="i")
    assert beats.refused("S", 9, instance_id="i") is ErrorCode.FENCED_MEMBER_EPOCH
    assert beats.join("S", instance_id="i") == (2, ALL)


def test_unknown_topics_count_once_they_are_there(beats: Beats) -> None:
    """C15."""
    assert beats.join("A", ["new"]) == (2, set())
    beats.harness.catalog.change("new", 2)
    assert beats.beat("A", 2) == (3, {("new", 0), ("new", 1)})


def test_a_topic_that_is_deleted_is_given_up(beats: Beats) -> None:
    """C64."""
    beats.join("A", ["t", "u"])
    beats.harness.catalog.change("u", None)
    assert beats.beat("A", 2) == (2, ALL)
    assert beats.beat("A", 2, ALL) == (3, None)
    assert beats.shown == ("Stable", 3, 3)


def test_nothing_is_given_up_while_topics_are_not_known(beats: Beats) -> None:
    """C63, C5: sessions stand still meanwhile."""
    beats.join("A")
    beats.harness.catalog.is_whole = False
    beats.harness.topics.counts.pop("t")
    beats.harness.catalog.version += 1
    assert beats.refused("A", 2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    beats.harness.wait(300)
    beats.harness.topics.counts["t"] = 6
    beats.harness.catalog.is_whole = True
    assert beats.beat("A", 2) == (2, ALL)


def test_beside_a_node_that_does_not_know_the_protocol_it_is_off(beats: Beats) -> None:
    """C5: members of before go on by name, nobody joins."""
    beats.join("A")
    beats.harness.catalog.is_offered = False
    assert beats.refused("B", 0, (), **JOIN) is ErrorCode.UNSUPPORTED_VERSION
    assert beats.refused("A", 2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    beats.harness.wait(300)
    beats.harness.catalog.is_offered = True
    assert beats.beat("A", 2) == (2, ALL)


def test_a_range_of_expressions_and_names_is_their_union(beats: Beats) -> None:
    """C40."""
    beats.join("A", ["t"], subscribed_topic_regex="u")
    assert beats.beat("A", 2) == (3, {("t", p) for p in range(6)} | {("u", p) for p in range(4)})


def test_an_expression_finds_new_topics_and_internal_ones_never(beats: Beats) -> None:
    """C41, C42."""
    beats.harness.topics.counts = {"__consumer_offsets": 4, "t": 1}
    beats.join("A", None, subscribed_topic_regex=".*")
    assert beats.beat("A", 1) == (2, {0})
    beats.beat("A", 2, [0])
    beats.harness.catalog.change("v", 1)
    beats.beat("A", 2)
    beats.harness.wait(10)
    beats.beat("A", 2)
    assert beats.beat("A", 2) == (3, {("t", 0), ("v", 0)})


def test_an_expression_shows_no_topic_that_its_member_may_not_see(beats: Beats) -> None:
    """C41."""
    coordinator, turn = beats.harness.coordinator, beats.harness.turn
    beats.join("A", None, subscribed_topic_regex="x")
    group, machine = beats.group, coordinator.consumer_groups
    group.next_resolution, group.resolved = 0.0, {}
    group.regexes.clear()
    group.regexes["[tu]"] = 1
    machine.resolve(group, lambda name: name != "u")
    turn()
    assert group.resolved["[tu]"].topics == {"t"}


def test_an_expression_that_nobody_has_any_more_is_forgotten(beats: Beats) -> None:
    beats.join("A", None, subscribed_topic_regex="t")
    assert beats.beat("A", 1) == (2, ALL)
    assert beats.beat("A", 2, ALL, subscribed_topic_names=["t"], subscribed_topic_regex="")[0] == 3
    assert beats.group.resolved == {}
    beats.harness.reload()
    assert beats.group.resolved == {}


def test_a_failing_assignor_leaves_the_target_as_it_is(
    beats: Beats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C27."""
    beats.join("A")
    with monkeypatch.context() as patched:
        patched.setattr(
            "barnabas.coordinator.consumer_groups.target_assignment.ASSIGNORS", {"uniform": None}
        )
        code = beats.refused("B", 0, (), **JOIN)
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert beats.beat("A", 2)[0] == 2
    assert beats.join("B") == (3, set())


def test_the_assignor_that_most_members_prefer_is_used(beats: Beats) -> None:
    """C28."""
    beats.join("A", server_assignor="range")
    beats.join("B", server_assignor="range")
    beats.join("C", server_assignor="uniform")
    assert beats.group.targets["A"] == {b"t".ljust(16, b"\0"): (0, 1)}


def test_no_coordinator_no_group(make_harness: Make) -> None:
    beats = Beats(make_harness(is_elected=False))
    assert beats.refused("A", 0, (), **JOIN) is ErrorCode.NOT_COORDINATOR
    beats.harness.coordinator.stop()
    assert beats.refused("A", 0, (), **JOIN) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_large_group_is_assigned_in_turns(beats: Beats) -> None:
    """C84: the old target serves meanwhile."""
    beats.harness.topics.counts["t"] = 3000
    asked = beats.send("A", 0, (), **JOIN)
    assert assigned(asked) == set()
    beats.harness.wait(0.1)
    assert beats.shown[1:] == (2, 2)
    assert beats.beat("A", 1) == (2, set(range(3000)))
    beats.harness.reload()
    assert beats.beat("A", 2, range(3000)) == (2, None)


def test_members_join_and_leave_while_it_is_looked_whose_target_is_new(beats: Beats) -> None:
    """C84: others have their turns meanwhile."""
    beats.join("A")
    group = beats.group
    for number in range(STEPS_PER_TURN):
        group.put(ConsumerMember(f"m{number:03}", group.consumers["A"].profile))
    steps = changed_members(group, {})
    next(steps)
    group.put(ConsumerMember("late", group.consumers["A"].profile))
    group.drop(group.consumers["m000"])
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value[-1] == "m499"
