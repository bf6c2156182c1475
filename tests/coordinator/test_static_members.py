"""Static members: a restart keeps the place, the old process is fenced.

Source: docs/spec/coordinator.md §5.6, KIP-345, KIP-814; §5.9 checks C5.5 and C5.8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group_state import GroupState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.coordinator_harness import Asked, CoordinatorHarness

FENCED = ErrorCode.FENCED_INSTANCE_ID


def join(
    harness: CoordinatorHarness, instance_id: str, member_id: str = "", **fields: Any
) -> Asked:
    fields.setdefault("version", 5)
    return harness.join(member_id, group_instance_id=instance_id, **fields)


def pair(harness: CoordinatorHarness) -> tuple[str, str]:
    """A Stable group of the static members "a", which leads, and "b"; generation 2."""
    first = join(harness, "a").answer.member_id
    second = join(harness, "b")
    join(harness, "a", first)
    follower = second.answer.member_id
    harness.sync(first, 2, {first: b"for a", follower: b"for b"}, group_instance_id="a")
    harness.sync(follower, 2, group_instance_id="b")
    assert harness.group().state is GroupState.STABLE
    return first, follower


def test_a_static_member_is_let_in_at_once_under_its_instance_id(
    harness: CoordinatorHarness,
) -> None:
    asked = join(harness, "a")
    assert asked.code is ErrorCode.NONE
    assert asked.answer.member_id.startswith("a-")


def test_a_restart_keeps_generation_and_assignment_and_fences_the_old_id(
    harness: CoordinatorHarness,
) -> None:
    _, follower = pair(harness)
    asked = join(harness, "b")
    assert asked.answer.generation_id == 2
    new = asked.answer.member_id
    assert new != follower
    assert harness.sync(new, 2, group_instance_id="b").answer.assignment == b"for b"
    assert harness.heartbeat(follower, 2, group_instance_id="b") is FENCED
    assert harness.sync(follower, 2, group_instance_id="b").code is FENCED
    assert harness.heartbeat(new, 2, group_instance_id="b") is ErrorCode.NONE
    assert harness.group().state is GroupState.STABLE


def test_the_new_id_is_stored_before_it_is_told(harness: CoordinatorHarness) -> None:  # KAFKA-10284
    _, follower = pair(harness)
    harness.log.is_replicated = False
    asked = join(harness, "b")
    assert not asked.is_answered
    harness.log.replicate(harness.group().term.partition)
    new = asked.answer.member_id
    harness.log.is_replicated = True
    harness.reload()
    assert harness.heartbeat(follower, 2, group_instance_id="b") is FENCED
    assert harness.heartbeat(new, 2, group_instance_id="b") is ErrorCode.NONE


def test_a_return_that_cannot_be_stored_is_taken_back(harness: CoordinatorHarness) -> None:
    _, follower = pair(harness)
    harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    asked = join(harness, "b")
    assert asked.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert asked.answer.member_id == ""
    assert harness.heartbeat(follower, 2, group_instance_id="b") is ErrorCode.NONE


def test_a_leader_that_comes_back_before_version_9_is_told_that_its_old_self_leads(
    harness: CoordinatorHarness,
) -> None:
    leader, _ = pair(harness)
    asked = join(harness, "a")
    assert asked.answer.leader == leader != asked.answer.member_id
    assert not asked.answer.members
    assert harness.group().leader_id == asked.answer.member_id


def test_a_leader_that_comes_back_from_version_9_on_is_told_to_skip_the_assignment(
    harness: CoordinatorHarness,
) -> None:
    pair(harness)
    leads = join(harness, "a", version=9)
    assert leads.answer.skip_assignment
    assert leads.answer.leader == leads.answer.member_id
    assert {member.group_instance_id for member in leads.answer.members} == {"a", "b"}
    follows = join(harness, "b", version=9)
    assert not follows.answer.skip_assignment
    assert not follows.answer.members
    assert follows.answer.leader == leads.answer.member_id


def test_requests_the_old_process_had_parked_are_answered_82(harness: CoordinatorHarness) -> None:
    leader, _ = pair(harness)
    old = join(harness, "a", leader, topics=["clicks"])
    assert not old.is_answered
    new = join(harness, "a")
    assert old.code is FENCED
    assert not new.is_answered
    assert harness.group().state is GroupState.PREPARING


def test_a_return_while_completing_starts_a_rebalance(harness: CoordinatorHarness) -> None:
    first = join(harness, "a").answer.member_id
    asked = join(harness, "a")
    assert asked.answer.generation_id == 2
    assert harness.heartbeat(first, 2, group_instance_id="a") is FENCED


def test_a_return_with_another_protocol_starts_a_rebalance(harness: CoordinatorHarness) -> None:
    both = {"range": b"x", "sticky": b"x"}
    first = join(harness, "a", protocols=both).answer.member_id
    harness.sync(first, 1, {first: b"all"}, group_instance_id="a")
    asked = join(harness, "a", protocols={"sticky": b"x", "range": b"x"})
    assert asked.answer.generation_id == 2
    assert asked.answer.protocol_name == "sticky"


def test_a_second_return_takes_the_place_of_the_first_while_that_is_being_stored(
    harness: CoordinatorHarness,
) -> None:
    pair(harness)
    harness.log.is_replicated = False
    first, second = join(harness, "b"), join(harness, "b")
    assert first.code is FENCED
    harness.log.replicate(harness.group().term.partition)
    assert second.code is ErrorCode.NONE
    assert second.answer.member_id in harness.group().members


def test_a_rebalance_that_begins_while_a_return_is_stored_answers_it(
    harness: CoordinatorHarness,
) -> None:
    leader, _ = pair(harness)
    harness.log.is_replicated = False
    asked = join(harness, "b")
    join(harness, "a", leader)
    assert asked.answer.generation_id == 3
    harness.log.replicate(harness.group().term.partition)
    assert harness.group().state is GroupState.COMPLETING


def test_a_silent_static_member_keeps_its_place_in_a_rebalance_until_its_session_ends(
    harness: CoordinatorHarness,
) -> None:
    first = join(harness, "a", session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    second = join(harness, "b", session_timeout_ms=30_000, rebalance_timeout_ms=10_000)
    member = first.answer.member_id
    join(harness, "a", member, session_timeout_ms=60_000, rebalance_timeout_ms=10_000)
    harness.sync(member, 2, {}, group_instance_id="a")
    harness.sync(second.answer.member_id, 2, group_instance_id="b")
    asked = join(
        harness, "a", member, topics=["x"], session_timeout_ms=60_000, rebalance_timeout_ms=10_000
    )
    harness.wait(10.1)
    assert {item.group_instance_id for item in asked.answer.members} == {"a", "b"}
    harness.sync(member, 3, {}, group_instance_id="a")
    harness.wait(9)
    # the time for SyncGroup is over a rebalance timeout after the join completed
    harness.wait(1.1)
    assert harness.heartbeat(member, 3, group_instance_id="a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.answer.member_id not in harness.group().members


def test_an_instance_id_nobody_has_is_unknown(harness: CoordinatorHarness) -> None:
    pair(harness)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat("m", 2, group_instance_id="c") is unknown
    assert join(harness, "c", "made-up").code is unknown


@pytest.mark.parametrize(("instance_id", "code"), [("b", 0), ("c", 25)])
def test_an_administrator_removes_a_static_member_by_instance_id_alone(
    harness: CoordinatorHarness, instance_id: str, code: int
) -> None:
    pair(harness)
    asked = harness.leave("", instance_id=instance_id)
    assert asked.answer.members[0].error_code == code
    assert ("b" in harness.group().static_members) == bool(code)


def test_a_full_group_still_lets_its_static_members_return(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(group_members_max=2)
    pair(harness)
    assert join(harness, "b").code is ErrorCode.NONE
    assert join(harness, "c").code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_stable_group_goes_on_without_a_rebalance_after_a_failover(
    harness: CoordinatorHarness,
) -> None:
    leader, follower = pair(harness)
    harness.reload()
    assert harness.heartbeat(leader, 2, group_instance_id="a") is ErrorCode.NONE
    assert harness.sync(follower, 2, group_instance_id="b").answer.assignment == b"for b"
    assert join(harness, "b", follower).answer.generation_id == 2
    assert harness.group().leader_id == leader


def test_sessions_run_on_after_a_failover(harness: CoordinatorHarness) -> None:
    members = harness.stable(2)
    harness.reload()
    harness.wait(9)
    assert harness.heartbeat(members[0], 2) is ErrorCode.NONE
    harness.wait(1.5)
    assert harness.heartbeat(members[0], 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_loaded_group_that_is_too_large_now_is_made_smaller(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness()
    members = harness.stable(3)
    small = make_harness(loop=None, group_members_max=2, is_elected=False)
    small.log = harness.log
    small.coordinator.loader._log = harness.log
    for index in range(4):
        small.coordinator.on_elected(index, 0)
    small.turn()
    assert small.group().state is GroupState.PREPARING
    assert small.join(members[2]).is_answered is False
    assert small.join(members[1]).is_answered is False
    assert small.join(members[0]).code is ErrorCode.GROUP_MAX_SIZE_REACHED
