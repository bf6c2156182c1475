"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of dynamic members.

Source: docs/spec/coordinator.md §5; §5.9 checks C5.1 to C5.4, C5.6 and C5.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.coordinator.group_state import GroupState
from barnabas.protocol.errors import ErrorCode
from tests.coordinator.coordinator_harness import CoordinatorHarness, codes_of

REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("version", range(4))
def test_two_members_one_leads_and_knows_both_the_other_knows_nobody(
    harness: CoordinatorHarness, version: int
) -> None:
    first = harness.join(version=version).answer.member_id
    follower = harness.join(version=version)
    leader = harness.join(first, version=version)
    assert leader.answer.generation_id == follower.answer.generation_id == 2
    assert leader.answer.leader == follower.answer.leader == first
    members = {member.member_id: member.metadata for member in leader.answer.members}
    assert members.keys() == {first, follower.answer.member_id}
    assert all(members.values())
    assert not follower.answer.members
    assert leader.answer.protocol_name == "range"


def test_from_version_7_the_answer_names_the_protocol_type(harness: CoordinatorHarness) -> None:
    member_id = harness.join(version=7).answer.member_id
    joined = harness.join(member_id, version=7)
    assert joined.code is ErrorCode.NONE
    assert joined.answer.protocol_type == "consumer"
    assert harness.join("nobody", version=7).answer.protocol_name is None
    assert harness.join("nobody", version=6).answer.protocol_name == ""


def test_from_version_4_a_member_learns_its_id_first_and_joins_with_it(
    harness: CoordinatorHarness,
) -> None:
    asked = harness.join(version=4)
    assert asked.code is ErrorCode.MEMBER_ID_REQUIRED
    member_id = asked.answer.member_id
    assert member_id.startswith("app-")
    joined = harness.join(member_id, version=4)
    assert joined.code is ErrorCode.NONE
    assert joined.answer.member_id == member_id


def test_an_abandoned_member_id_delays_a_join_by_at_most_its_session_timeout(
    harness: CoordinatorHarness,
) -> None:
    (member,) = harness.stable()
    harness.join(version=4)  # never comes back
    asked = harness.join(member)
    harness.wait(9.5)
    assert not asked.is_answered
    harness.wait(0.6)
    assert asked.code is ErrorCode.NONE


def test_a_promised_member_id_may_leave_and_then_delays_nobody(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    pending = harness.join(version=4).answer.member_id
    asked = harness.join(member)
    assert not asked.is_answered
    assert harness.leave(pending).answer.members[0].error_code == 0
    assert asked.code is ErrorCode.NONE


def test_a_silent_member_goes_after_its_session_and_the_others_are_told_27(
    harness: CoordinatorHarness,
) -> None:
    first, _second = harness.stable(2, session_timeout_ms=10_000)
    generation = harness.group().generation
    for _ in range(3):
        harness.wait(3)
        assert harness.heartbeat(first, generation) is ErrorCode.NONE
    harness.wait(1.5)
    assert harness.heartbeat(first, generation) is REBALANCE
    asked = harness.join(first)
    assert asked.answer.generation_id == generation + 1
    assert [member.member_id for member in asked.answer.members] == [first]


def test_heartbeats_and_commits_keep_a_member_alive(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable(session_timeout_ms=10_000)
    for _ in range(4):
        harness.wait(6)
        assert harness.heartbeat(member, 1) is ErrorCode.NONE
        harness.wait(6)
        commit = harness.commit(1, member_id=member, generation_id_or_member_epoch=1)
        assert codes_of(commit) == [ErrorCode.NONE]
    assert harness.group().state is GroupState.STABLE
    harness.wait(10.1)
    assert harness.group().state is GroupState.EMPTY


def test_a_member_that_heartbeats_but_never_syncs_goes_after_the_rebalance_timeout(
    harness: CoordinatorHarness,
) -> None:  # KAFKA-12890
    first = harness.join(rebalance_timeout_ms=20_000).answer.member_id
    second = harness.join(rebalance_timeout_ms=20_000)
    harness.join(first, rebalance_timeout_ms=20_000)
    assert harness.sync(first, 2, {first: b"all"}).answer.assignment == b"all"
    follower = second.answer.member_id
    for _ in range(4):
        harness.wait(4.9)
        assert harness.heartbeat(first, 2) is ErrorCode.NONE
        assert harness.heartbeat(follower, 2) is ErrorCode.NONE
    harness.wait(0.5)
    assert harness.heartbeat(follower, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.heartbeat(first, 2) is REBALANCE


def test_the_third_member_of_a_group_of_two_is_refused(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(group_members_max=2)
    harness.stable(2)
    third = harness.join()
    assert third.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert third.answer.member_id == ""
    assert harness.group().state is GroupState.STABLE


def test_while_preparing_the_first_to_rejoin_have_the_room(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(group_members_max=2)
    first, second = harness.stable(2)
    leader = harness.join(first)
    assert harness.group().state is GroupState.PREPARING
    newcomer = harness.join()
    assert not newcomer.is_answered
    late = harness.join(second)
    assert late.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert leader.code is newcomer.code is ErrorCode.NONE
    assert second not in harness.group().members


def test_a_commit_is_taken_while_preparing_and_refused_while_completing(
    harness: CoordinatorHarness,
) -> None:
    (member,) = harness.stable()
    newcomer = harness.join()
    commit = harness.commit(1, member_id=member, generation_id_or_member_epoch=1)
    assert codes_of(commit) == [ErrorCode.NONE]
    harness.join(member)
    assert newcomer.is_answered
    commit = harness.commit(2, member_id=member, generation_id_or_member_epoch=2)
    assert codes_of(commit) == [REBALANCE]


# -- joining ---------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [5999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(
    harness: CoordinatorHarness, timeout_ms: int
) -> None:
    assert harness.join(session_timeout_ms=timeout_ms).code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert "g" not in harness.coordinator.registry.groups


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})])
def test_a_first_member_needs_a_protocol_type_and_a_protocol(
    harness: CoordinatorHarness, protocol_type: str, protocols: dict[str, bytes]
) -> None:
    asked = harness.join(protocol_type=protocol_type, protocols=protocols)
    assert asked.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_must_share_a_protocol_with_everybody_and_the_type(
    harness: CoordinatorHarness,
) -> None:
    harness.join(protocols={"range": b"", "sticky": b""})
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.join(protocols={"roundrobin": b""}).code is inconsistent
    assert harness.join(protocols={"range": b""}, protocol_type="connect").code is inconsistent
    assert not harness.join(protocols={"sticky": b"", "roundrobin": b""}).is_answered


def test_the_protocol_most_members_prefer_among_the_shared_wins(
    harness: CoordinatorHarness,
) -> None:
    both = {"range": b"r", "sticky": b"s"}
    turned = {"sticky": b"s", "range": b"r"}
    first = harness.join(protocols=both).answer.member_id
    second, third = harness.join(protocols=turned), harness.join(protocols=turned)
    harness.join(first, protocols=both)
    assert second.answer.protocol_name == third.answer.protocol_name == "sticky"


def test_a_tie_is_decided_by_the_order_of_the_leader(harness: CoordinatorHarness) -> None:
    first = harness.join(protocols={"b": b"", "a": b""}).answer.member_id
    second = harness.join(protocols={"a": b"", "b": b""})
    assert harness.join(first, protocols={"b": b"", "a": b""}).answer.leader == first
    assert second.answer.protocol_name == "b"


def test_a_follower_that_asks_again_gets_the_present_generation(
    harness: CoordinatorHarness,
) -> None:
    leader, follower = harness.stable(2)
    generation = harness.group().generation
    asked = harness.join(follower)
    assert asked.answer.generation_id == generation
    assert not asked.answer.members
    assert harness.group().state is GroupState.STABLE
    harness.join(leader)
    assert harness.group().state is GroupState.PREPARING


def test_a_changed_subscription_starts_a_rebalance(harness: CoordinatorHarness) -> None:
    _, follower = harness.stable(2)
    asked = harness.join(follower, topics=["orders", "clicks"])
    assert not asked.is_answered
    assert harness.group().state is GroupState.PREPARING


def test_while_completing_the_same_join_again_gets_the_same_answer(
    harness: CoordinatorHarness,
) -> None:
    first = harness.join()
    again = harness.join(first.answer.member_id)
    assert again.answer == first.answer
    assert harness.group().state is GroupState.COMPLETING


def test_a_second_join_of_one_member_answers_the_first_with_16(
    harness: CoordinatorHarness,
) -> None:  # KAFKA-20938
    leader, follower = harness.stable(2)
    first = harness.join(leader)
    second = harness.join(leader)
    assert first.code is ErrorCode.NOT_COORDINATOR
    assert not second.is_answered
    harness.join(follower)
    assert second.code is ErrorCode.NONE


def test_who_does_not_rejoin_within_the_rebalance_timeout_goes(harness: CoordinatorHarness) -> None:
    first, second = harness.stable(2, rebalance_timeout_ms=15_000, session_timeout_ms=60_000)
    asked = harness.join(first, rebalance_timeout_ms=15_000, session_timeout_ms=60_000)
    harness.wait(14.9)
    assert not asked.is_answered
    harness.wait(0.2)
    assert asked.code is ErrorCode.NONE
    assert second not in harness.group().members


def test_when_the_leader_does_not_rejoin_somebody_who_did_leads(
    harness: CoordinatorHarness,
) -> None:
    _, second = harness.stable(2, rebalance_timeout_ms=15_000, session_timeout_ms=60_000)
    asked = harness.join(second, topics=["clicks"], rebalance_timeout_ms=15_000)
    harness.wait(15.1)
    assert asked.answer.leader == second


def test_a_rebalance_waits_for_the_longest_rebalance_timeout(harness: CoordinatorHarness) -> None:
    first = harness.join(rebalance_timeout_ms=10_000, session_timeout_ms=100_000).answer.member_id
    second = harness.join(rebalance_timeout_ms=50_000, session_timeout_ms=100_000)
    harness.join(first, rebalance_timeout_ms=10_000, session_timeout_ms=100_000)
    third = harness.join(second.answer.member_id, topics=["clicks"], rebalance_timeout_ms=50_000)
    harness.wait(49)
    assert not third.is_answered
    harness.wait(1.1)
    assert third.is_answered


def test_a_new_member_whose_client_is_gone_stays_five_minutes_at_most(
    harness: CoordinatorHarness,
) -> None:
    harness.stable(rebalance_timeout_ms=600_000, session_timeout_ms=1_800_000)
    asked = harness.join(rebalance_timeout_ms=600_000)
    harness.wait(299)
    assert not asked.is_answered
    harness.wait(1.5)
    assert asked.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert asked.answer.member_id == ""


def test_a_known_member_of_an_emptied_group_is_unknown(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    harness.leave(member)
    assert harness.group().state is GroupState.EMPTY
    assert harness.join(member).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_emptied_group_takes_another_protocol_type(harness: CoordinatorHarness) -> None:
    (member,) = harness.stable()
    harness.leave(member)
    asked = harness.join(protocol_type="connect", protocols={"eager": b"x"})
    assert asked.answer.generation_id == 3
    assert harness.group().protocol_type == "connect"


# -- the initial delay -----------------------------------------------------------------------


def test_a_first_rebalance_waits_for_others_and_longer_while_they_come(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(initial_rebalance_delay_ms=3000)
    first = harness.join()
    harness.wait(2.9)
    second = harness.join()
    harness.wait(0.2)
    assert not first.is_answered
    harness.wait(3)
    assert first.answer.generation_id == second.answer.generation_id == 1


def test_the_initial_delay_never_exceeds_the_rebalance_timeout(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(initial_rebalance_delay_ms=3000)
    first = harness.join(rebalance_timeout_ms=7000)
    for _ in range(3):
        harness.wait(2)
        harness.join(rebalance_timeout_ms=7000)
    assert not first.is_answered
    harness.wait(1.1)
    assert first.is_answered


def test_a_group_that_was_empty_again_waits_but_not_longer(
    make_harness: Callable[..., CoordinatorHarness],
) -> None:
    harness = make_harness(initial_rebalance_delay_ms=3000)
    first = harness.join()
    harness.wait(3.1)
    harness.sync(first.answer.member_id, 1, {})
    harness.leave(first.answer.member_id)
    asked = harness.join()
    harness.wait(2)
    harness.join()
    assert not asked.is_answered
    harness.wait(1.1)
    assert asked.answer.generation_id == 3


def test_members_that_all_stay_away_are_waited_for_until_their_sessions_end(
    harness: CoordinatorHarness,
) -> None:
    fields: dict[str, Any] = {
        "version": 5,
        "group_instance_id": "a",
        "rebalance_timeout_ms": 10_000,
        "session_timeout_ms": 60_000,
    }
    member = harness.join(**fields).answer.member_id
    harness.sync(member, 1, {}, group_instance_id="a")
    newcomer = harness.join(rebalance_timeout_ms=10_000)  # and then only the static one is left
    harness.leave(next(name for name in harness.group().members if name != member))
    assert newcomer.code is ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(2):
        harness.wait(10.1)
        assert harness.group().state is GroupState.PREPARING
    assert harness.join(member, **fields).answer.generation_id == 2


def test_what_cannot_be_stored_of_an_emptied_group_does_not_keep_it_from_being_empty(
    harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    (member,) = harness.stable()
    harness.log.append_fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.leave(member)
    assert harness.group().state is GroupState.EMPTY
    assert "empty group not stored" in caplog.text
