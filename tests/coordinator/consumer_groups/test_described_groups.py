"""What tools are told of consumer groups. Source: docs/spec/consumer-groups.md §1.2, C10, C11."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.consumer_groups import described_groups
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import consumer_group_describe, describe_groups, list_groups
from tests.coordinator.consumer_groups.beats import Beats
from tests.coordinator.coordinator_harness import Asked, G

UNTOLD = -(2**31)


def describe(beats: Beats, *groups: str, with_operations: bool = False) -> list[Any]:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=list(groups), include_authorized_operations=with_operations
    )
    return list(beats.harness.ask("consumer_group_describe", request, 1).answer.groups)


def partitions(assignment: Any) -> dict[str, list[int]]:
    return {topic.topic_name: list(topic.partitions) for topic in assignment.topic_partitions}


def test_a_group_is_described_with_its_members(beats: Beats) -> None:
    beats.join("A", rack_id="r")
    beats.join("S", instance_id="i")
    beats.beat("A", 2)
    (group,) = describe(beats, "g")
    assert (group.error_code, group.group_state) == (0, "Reconciling")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (3, 3, "uniform")
    first, second = group.members
    assert (first.member_id, first.rack_id, first.member_epoch) == ("A", "r", 2)
    assert (first.client_id, first.client_host, first.member_type) == ("app", "/10.0.0.7", 1)
    assert partitions(first.assignment) == {"t": [0, 1, 2, 3, 4, 5]}  # KAFKA-20431
    assert partitions(first.target_assignment) == {"t": [0, 1, 2]}
    assert (second.instance_id, list(second.subscribed_topic_names)) == ("i", ["t"])


def test_topics_without_a_name_are_left_out(beats: Beats) -> None:
    beats.join("A", ["t", "u"])
    beats.harness.catalog.change("u", None)
    (group,) = describe(beats, "g")
    assert partitions(group.members[0].assignment) == {"t": [0, 1, 2, 3, 4, 5]}


def test_each_group_has_its_own_code(beats: Beats) -> None:
    beats.join("A")
    beats.harness.stable(group="classic")
    codes = [(group.group_id, group.error_code) for group in describe(beats, "", "g", "x", "g")]
    assert codes == [("", ErrorCode.INVALID_GROUP_ID), ("g", 0), ("x", 69)]
    assert describe(beats, "classic")[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(beats) == []


def test_where_nobody_forbids_anything_every_operation_is_told_of_who_asks_for_them(
    beats: Beats,
) -> None:
    beats.join("A")
    told = [group.authorized_operations for group in describe(beats, "g", "x")]
    assert told == [UNTOLD, UNTOLD]
    told = [
        group.authorized_operations for group in describe(beats, "g", "x", with_operations=True)
    ]
    assert told == [328, UNTOLD]


def test_a_description_waits_until_it_is_committed(beats: Beats) -> None:
    """C11."""
    beats.harness.log.is_replicated = False
    beats.send("A", 0, (), rebalance_timeout_ms=1, subscribed_topic_names=["t"])
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=False
    )
    asked = beats.harness.ask("consumer_group_describe", request, 1)
    assert not asked.is_answered
    beats.harness.log.replicate(G)
    assert asked.answer.groups[0].group_epoch == 2


def ask_for(beats: Beats, group: str) -> Asked:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=[group], include_authorized_operations=False
    )
    return beats.harness.ask("consumer_group_describe", request, 1)


def join_unheard(beats: Beats, member: str) -> None:
    """A member whose answer is waited for: what it changes is not committed yet."""
    beats.send(member, 0, (), rebalance_timeout_ms=1000, subscribed_topic_names=["t"])


def test_a_description_that_waits_for_a_commit_holds_up_no_other(beats: Beats) -> None:
    beats.harness.stable(group="other")
    beats.harness.log.is_replicated = False
    join_unheard(beats, "A")
    asked = ask_for(beats, "g")
    request = describe_groups.DescribeGroupsRequest(
        groups=["other"], include_authorized_operations=False
    )
    (group,) = beats.harness.ask("describe_groups", request, 5).answer.groups
    assert group.group_state == "Stable"
    assert ask_for(beats, "x").is_answered
    assert not asked.is_answered
    beats.harness.log.replicate(G)
    assert asked.answer.groups[0].group_epoch == 2


def test_descriptions_that_wait_for_commits_take_bounded_memory(
    beats: Beats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What would be too much waits in the queue, and others behind it, until it is answered."""
    monkeypatch.setattr(described_groups, "WAITING_MAX", 12)  # members and partitions
    for member in ("A", "B"):
        beats.harness.log.is_replicated = False
        join_unheard(beats, member)
        first, second, third = ask_for(beats, "g"), ask_for(beats, "g"), ask_for(beats, "x")
        assert not third.is_answered
        beats.harness.log.is_replicated = True
        beats.harness.log.replicate(G)
        beats.harness.turn()
        assert first.answer == second.answer
        assert third.is_answered


def test_describe_groups_does_not_know_consumer_groups(beats: Beats) -> None:
    """C11: from version 6 on that is an error, and tools ask the other way."""
    beats.join("A")
    for version, code in ((5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)):
        for name in ("g", "x"):
            request = describe_groups.DescribeGroupsRequest(
                groups=[name], include_authorized_operations=False
            )
            (group,) = beats.harness.ask("describe_groups", request, version).answer.groups
            assert (group.group_state, group.error_code) == ("Dead", code)
            assert bool(group.error_message) is bool(code)


def listed(beats: Beats, **filters: Any) -> set[tuple[str, str, str, str]]:
    request = list_groups.ListGroupsRequest(**filters)
    return {
        (group.group_id, group.protocol_type, group.group_state, group.group_type)
        for group in beats.harness.ask("list_groups", request, 5).answer.groups
    }


def test_groups_are_listed_with_type_and_state(beats: Beats) -> None:
    """C11: filters ignore case."""
    beats.join("A")
    beats.join("B")
    beats.harness.stable(group="classic")
    ours = ("g", "consumer", "Reconciling", "consumer")
    others = ("classic", "consumer", "Stable", "classic")
    assert listed(beats) == {ours, others}
    assert listed(beats, types_filter=["Consumer"]) == {ours}
    assert listed(beats, types_filter=["classic"]) == {others}
    assert listed(beats, states_filter=["RECONCILING"]) == {ours}
    assert listed(beats, states_filter=["stable"], types_filter=["consumer"]) == set()
    for name in ("A", "B"):
        beats.beat(name, -1)
    assert ("g", "consumer", "Empty", "consumer") in listed(beats, states_filter=["empty"])
