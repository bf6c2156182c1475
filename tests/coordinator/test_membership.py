"""SyncGroup and LeaveGroup of dynamic members: assignments, and how one goes.

Source: docs/spec/coordinator.md §1.8 and §5.5.
"""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.group_state import GroupState
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import leave_group
from tests.coordinator.coordinator_harness import CODES, CoordinatorHarness

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


# -- assignments -----------------------------------------------------------------------------


def test_nobody_gets_an_assignment_before_the_leader_gave_it_and_it_is_stored(
    harness: CoordinatorHarness,
) -> None:
    first = harness.join().answer.member_id
    second = harness.join()
    harness.join(first)
    follower = second.answer.member_id
    is_waiting = harness.sync(follower, 2)
    harness.log.is_replicated = False
    leads = harness.sync(first, 2, {follower: b"one", "stranger": b"x"})
    assert not is_waiting.is_answered
    assert not leads.is_answered
    harness.log.replicate(harness.group().term.partition)
    assert is_waiting.answer.assignment == b"one"
    assert leads.answer.assignment == b""
    assert harness.sync(follower, 2).answer.assignment == b"one"


@pytest.mark.parametrize(
    ("append_code", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_an_assignment_that_cannot_be_stored_is_told_to_all_and_starts_a_rebalance(
    harness: CoordinatorHarness, append_code: ErrorCode, told: ErrorCode
) -> None:
    first = harness.join().answer.member_id
    second = harness.join()
    harness.join(first)
    harness.log.append_fails_with = append_code
    is_waiting = harness.sync(second.answer.member_id, 2)
    assert harness.sync(first, 2, {first: b"all"}).code is told
    assert is_waiting.code is told
    assert harness.group().state is GroupState.PREPARING


def test_a_second_sync_of_one_member_answers_the_first_with_16(harness: CoordinatorHarness) -> None:
    first = harness.join().answer.member_id
    second = harness.join()
    harness.join(first)
    follower = second.answer.member_id
    superseded, is_waiting = harness.sync(follower, 2), harness.sync(follower, 2)
    assert superseded.code is ErrorCode.NOT_COORDINATOR
    harness.sync(first, 2, {follower: b"one"})
    assert is_waiting.answer.assignment == b"one"


def test_a_new_rebalance_answers_parked_syncs_with_27(harness: CoordinatorHarness) -> None:
    first = harness.join().answer.member_id
    second = harness.join()
    harness.join(first)
    is_waiting = harness.sync(second.answer.member_id, 2)
    harness.join()
    assert is_waiting.code is REBALANCE


def test_an_assignment_stored_too_late_for_its_generation_is_not_given_out(
    harness: CoordinatorHarness,
) -> None:
    first = harness.join().answer.member_id
    harness.log.is_replicated = False
    leads = harness.sync(first, 1, {first: b"old"})
    harness.join()
    assert leads.code is REBALANCE
    harness.join(first)
    harness.log.replicate(harness.group().term.partition)
    assert harness.group().state is GroupState.COMPLETING
    assert harness.group().members[first].assignment == b""


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"protocol_type": None, "protocol_name": "range"}, 23),
        ({"protocol_type": "consumer", "protocol_name": None}, 23),
        ({"protocol_type": "connect", "protocol_name": "range"}, 23),
        ({"protocol_type": "consumer", "protocol_name": "sticky"}, 23),
        ({"protocol_type": "consumer", "protocol_name": "range"}, 0),
    ],
)
def test_from_version_5_a_sync_names_the_protocol_it_believes_in(
    harness: CoordinatorHarness, fields: dict[str, Any], code: int
) -> None:
    (member,) = harness.stable()
    asked = harness.sync(member, 1, version=5, **fields)
    assert asked.code == code
    if not code:
        assert (asked.answer.protocol_type, asked.answer.protocol_name) == ("consumer", "range")


def test_a_sync_of_another_generation_is_illegal(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    assert harness.sync(member, 7).code is ErrorCode.ILLEGAL_GENERATION


# -- leaving ---------------------------------------------------------------------------------


def test_the_last_to_leave_empties_the_group_and_counts_a_generation(
    harness: CoordinatorHarness,
) -> None:
    (member,) = harness.stable()
    assert harness.leave(member).answer.members[0].error_code == 0
    assert harness.group().state is GroupState.EMPTY
    assert harness.group().generation == 2
    assert harness.leave(member).answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_before_version_3_the_error_of_the_one_member_is_at_the_top(
    harness: CoordinatorHarness,
) -> None:
    (member,) = harness.stable()
    request = leave_group.LeaveGroupRequest(group_id="g", member_id="stranger")
    assert harness.ask("leave_group", request, 2).code is ErrorCode.UNKNOWN_MEMBER_ID
    request = leave_group.LeaveGroupRequest(group_id="g", member_id=member)
    assert harness.ask("leave_group", request, 2).code is ErrorCode.NONE


def test_several_members_leave_at_once_each_with_its_own_code(harness: CoordinatorHarness) -> None:
    members = harness.stable(2)
    names = [members[0], "stranger", members[1]]
    request = leave_group.LeaveGroupRequest(
        group_id="g", members=[leave_group.Member(member_id=name) for name in names]
    )
    answer = harness.ask("leave_group", request, 5).answer
    codes = [CODES[member.error_code] for member in answer.members]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE]
    assert harness.group().state is GroupState.EMPTY


def test_a_member_that_leaves_lets_a_waiting_join_complete(harness: CoordinatorHarness) -> None:
    first, second = harness.stable(2)
    asked = harness.join(first)
    assert not asked.is_answered
    harness.leave(second)
    assert asked.answer.generation_id == 3


def test_a_member_that_leaves_has_its_own_waiting_requests_answered_25(
    harness: CoordinatorHarness,
) -> None:
    first = harness.join().answer.member_id
    second = harness.join()
    harness.join(first)
    is_waiting = harness.sync(second.answer.member_id, 2)
    harness.leave(second.answer.member_id)
    assert is_waiting.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_resignation_answers_joins_and_syncs_with_16(harness: CoordinatorHarness) -> None:
    first, second = harness.stable(2)
    join = harness.join(first)
    harness.stable(group="h")
    harness.join(group="h")
    harness.join(harness.group("h").leader_id, group="h")
    follower = next(
        name for name in harness.group("h").members if name != harness.group("h").leader_id
    )
    sync = harness.sync(follower, 2, group="h")
    harness.coordinator.stop()
    assert join.code is sync.code is ErrorCode.NOT_COORDINATOR
    assert harness.heartbeat(second, 2) is ErrorCode.COORDINATOR_NOT_AVAILABLE
